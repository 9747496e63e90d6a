"""Who is compared, and where each one's interpreter is."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PEERS_FILE = Path(__file__).with_name("peers.txt")
ENVIRONMENT = CHECKOUT / ".cache" / "bench-venv"

CLASSES = {
    "penstock": "penstock:PenstockSystem",
    "bare": "bare:BareSystem",
    "pgqueuer": "pgqueuer:PgQueuerSystem",
    "chancy": "chancy:ChancySystem",
    "procrastinate": "procrastinate:ProcrastinateSystem",
    "dbos": "dbos:DbosSystem",
}
PEERS = ("pgqueuer", "chancy", "procrastinate", "dbos")
OURS = ("penstock", "bare")


@dataclass(frozen=True, slots=True)
class Contender:
    """A system with its interpreter. A slow one gets a part of the jobs: rates are what is compared."""

    name: str
    python: str
    share: float = 1.0


SHARES = {"chancy": 0.5, "procrastinate": 0.1, "dbos": 0.05}


def contenders(peers: list[str]) -> list[Contender]:
    ours = [Contender(name, sys.executable) for name in OURS]
    if not peers:
        return ours
    python = str(peers_environment() / "bin" / "python")
    return ours + [Contender(name, python, SHARES.get(name, 1.0)) for name in peers]


def peers_environment() -> Path:
    """A virtual environment for the peers, made when first needed and again when the pins or our own Python change."""
    stamp = ENVIRONMENT / ".peers"
    wanted = f"{PEERS_FILE.read_text()}\n{sys.base_prefix} {sys.version}"
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", "-r", str(PEERS_FILE)], check=True)
        stamp.write_text(wanted)
    return ENVIRONMENT


def versions(contender: Contender) -> dict[str, str]:
    """Of everything installed there."""
    code = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions()}))"
    )
    done = subprocess.run([contender.python, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found
