"""A Patroni cluster: three PostgreSQL servers, each under its Patroni, and one etcd that says which of them leads.

etcd comes from the system, else from Debian's package unpacked into the cache folder; Patroni from PyPI, into an
environment of its own there; PostgreSQL is the one that the tests use.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals
from typing import Any
from urllib.error import URLError

from tests.servers.binaries import postgres_folder
from tests.servers.debian import CACHE, unpacked
from tests.servers.errors import Unavailable
from tests.servers.postgres import SETTINGS
from tests.servers.server import as_child, free_port, make_folder

REQUIREMENT = ("patroni[etcd3,psycopg3]==4.1.5", "psycopg[binary]")
HINT = "Install etcd-server."
LOOPBACK = "127.0.0.1"
UP = 90.0
LEADS = ("leader", "primary", "master")


def etcd_program() -> Path:
    found = shutil.which("etcd")
    return (
        Path(found) if found else unpacked("etcd", ["etcd-server"], ["usr/bin/etcd"], HINT) / "usr/bin/etcd"
    )


def patroni_python() -> Path:
    """An interpreter that knows Patroni; made once."""
    place = CACHE / "patroni"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "patroni.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            shutil.rmtree(place, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(place))
            _run(str(place / "bin/python"), "-m", "pip", "install", "--quiet", *REQUIREMENT)
            (place / "ready").touch()
    return place / "bin/python"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"Patroni cannot be installed: {done.stderr[-1000:]}")


class Member:
    """One host of the cluster: PostgreSQL and the Patroni that looks after it."""

    def __init__(self, folder: Path, etcd_port: int) -> None:
        self.folder = folder
        self.name = folder.name
        self.port, self.rest = free_port(), free_port()
        self.etcd_port = etcd_port
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if not self.folder.exists():
            make_folder(self.folder)
            (self.folder / "patroni.json").write_text(json.dumps(self._settings()))
        command: list[str | Path] = [patroni_python(), "-m", "patroni", self.folder / "patroni.json"]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                # Told to end, it ends its server as well.
                as_child(command, SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "HOME": str(self.folder)},
            )

    def _settings(self) -> dict[str, Any]:
        parameters = {name: value for name, value in SETTINGS.items() if name != "listen_addresses"}
        shared = {
            "ttl": 20,
            "loop_wait": 2,
            "retry_timeout": 5,
            "synchronous_mode": True,
            "primary_start_timeout": 0,  # a server that died is replaced by another, not waited for
            "postgresql": {
                "use_pg_rewind": True,
                "parameters": parameters | {"wal_log_hints": "on", "wal_keep_size": "512MB"},
            },
        }
        trust = [f"host {database} all {LOOPBACK}/32 trust" for database in ("all", "replication")]
        users = {"superuser": "postgres", "replication": "replicator", "rewind": "rewinder"}
        return {
            "scope": "penstock",
            "name": self.name,
            "restapi": {"listen": f"{LOOPBACK}:{self.rest}", "connect_address": f"{LOOPBACK}:{self.rest}"},
            "etcd3": {"host": f"{LOOPBACK}:{self.etcd_port}"},
            "bootstrap": {
                "dcs": shared,
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "no-sync"],
            },
            "postgresql": {
                "listen": f"{LOOPBACK}:{self.port}",
                "connect_address": f"{LOOPBACK}:{self.port}",
                "data_dir": str(self.folder / "data"),
                "bin_dir": str(postgres_folder()),
                "pgpass": str(self.folder / "pgpass"),
                "pg_hba": trust,
                "authentication": {role: {"username": user, "password": "x"} for role, user in users.items()},
            },
            "watchdog": {"mode": "off"},
        }

    @property
    def server_id(self) -> int | None:
        """The first process of its PostgreSQL."""
        with suppress(OSError, ValueError, IndexError):
            return int((self.folder / "data/postmaster.pid").read_text().splitlines()[0])
        return None

    def pids(self) -> list[int]:
        """All of the host's processes, those that look after others first."""
        found = [] if self.process is None or self.process.poll() is not None else [self.process.pid]
        if (server := self.server_id) is not None:
            children = subprocess.run(
                ["ps", "-o", "pid=", "--ppid", str(server)], capture_output=True, text=True
            )
            found += [server, *map(int, children.stdout.split())]
        return found

    def send(self, number: Signals) -> None:
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """As with its machine."""
        self.send(SIGKILL)
        if self.process is not None:
            self.process.wait()

    def kill_server(self) -> None:
        if (server := self.server_id) is not None:
            os.kill(server, SIGKILL)

    def freeze(self) -> None:
        self.send(SIGSTOP)

    def thaw(self) -> None:
        self.send(SIGCONT)


class Patroni:
    """A running cluster."""

    def __init__(self, folder: Path, size: int = 3) -> None:
        self.folder = folder
        self.etcd_program = etcd_program()
        patroni_python()
        self.etcd_port, self.etcd_peer = free_port(), free_port()
        self.members = [Member(folder / f"member-{index}", self.etcd_port) for index in range(size)]
        self.etcd: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._start_etcd()
        first, *others = self.members
        first.start()
        self._wait(lambda: self.leader() is first)
        for member in others:
            member.start()
        self._wait(self.is_whole)

    def _start_etcd(self) -> None:
        make_folder(self.folder / "etcd")
        client, peer = (f"http://{LOOPBACK}:{port}" for port in (self.etcd_port, self.etcd_peer))
        options = {
            "data-dir": str(self.folder / "etcd/data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",
        }
        command: list[str | Path] = [
            self.etcd_program,
            *(f"--{name}={value}" for name, value in options.items()),
        ]
        with (self.folder / "etcd/server.log").open("ab") as log:
            self.etcd = subprocess.Popen(
                as_child(command, SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def view(self) -> list[dict[str, Any]]:
        """The members, as the first that answers has it."""
        for member in self.members:
            with suppress(URLError, OSError, ValueError):
                where = f"http://{LOOPBACK}:{member.rest}/cluster"
                with urllib.request.urlopen(where, timeout=2) as answer:
                    found: list[dict[str, Any]] = json.load(answer)["members"]
                    return found
        return []

    def leader(self) -> Member | None:
        names = [each["name"] for each in self.view() if each["role"] in LEADS and each["state"] == "running"]
        return next((member for member in self.members if member.name in names), None)

    def is_whole(self) -> bool:
        """One leads, all others follow, and one of these has everything that is committed."""
        seen = self.view()
        roles = [each["role"] for each in seen]
        well = all(each["state"] in ("running", "streaming") for each in seen)
        in_step = any(role in ("sync_standby", "quorum_standby") for role in roles)
        return (
            len(seen) == len(self.members) and well and in_step and sum(role in LEADS for role in roles) == 1
        )

    def wait_until_whole(self, patience: float = 25.0) -> None:
        """A server that cannot follow by itself is given a fresh copy, as an operator on call would do it."""
        end = time.monotonic() + patience
        while not self.is_whole():
            if time.monotonic() > end:
                self._reinitialize()
                end = time.monotonic() + 2 * patience
            time.sleep(0.2)

    def _reinitialize(self) -> None:
        stuck = {each["name"] for each in self.view() if each["state"] not in ("running", "streaming")}
        for member in self.members:
            if member.name in stuck:
                with suppress(URLError, OSError):
                    self._ask(member, "reinitialize", {"force": True})

    def switch_over(self) -> None:
        """Have another one lead, in order."""
        leader = self.leader()
        assert leader is not None
        self._ask(leader, "switchover", {"leader": leader.name})

    def _ask(self, member: Member, what: str, how: dict[str, object]) -> None:
        address = f"http://{LOOPBACK}:{member.rest}/{what}"
        request = urllib.request.Request(
            address, json.dumps(how).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60):
            pass

    def url(self, database: str) -> str:
        hosts = ",".join(f"{LOOPBACK}:{member.port}" for member in self.members)
        return f"postgresql://postgres@{hosts}/{database}"

    def stop(self) -> None:
        for member in self.members:
            member.kill()
        if self.etcd is not None:
            self.etcd.kill()
            self.etcd.wait()

    def _wait(self, is_so: Any) -> None:
        end = time.monotonic() + UP
        while not is_so():
            if time.monotonic() > end:
                logs = [file.read_text(errors="replace")[-1500:] for file in self.folder.glob("*/server.log")]
                raise Unavailable(f"Patroni did not come up: {self.view()} {logs}")
            time.sleep(0.2)
