"""Everything there is in a chaos run: server, network, hosts, producer; and a direct view of the database."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from signal import SIGTERM
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from sqlalchemy import make_url

from penstock import Penstock
from penstock.values.typed_json.json_text import loads
from tests.chaos import terms
from tests.chaos.cables import Cable, laid
from tests.chaos.hosts import SKEWED, Host, ProducerHost
from tests.chaos.programs import Programs
from tests.chaos.proxy import LOOPBACK, Network, Proxy
from tests.chaos.strike import Held, Strike
from tests.chaos.terms import Terms
from tests.memory import in_memory
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres
from tests.servers.server import Server
from tests.waiting import eventually

SERVERS: dict[str, type[Server]] = {"postgres": Postgres, "mariadb": Mariadb}
PROCESSES = "SELECT id, pid FROM {processes}"
RECEIPTS = "SELECT job_ids FROM {claims}"
HELD = """
SELECT job_id, generation, process_id FROM {job_states} WHERE job_id {among:ids:uuid} AND status = 'running'
"""
NOW = "SELECT {now}"
STARTING = 240.0
"""A busy machine takes its time."""


@dataclass(slots=True)
class World:
    terms: Terms
    folder: Path
    app: Penstock
    """The database as it is, not through the proxy of a host."""
    programs: Programs
    server: Server | None
    mark: str
    hosts: list[Host] = field(default_factory=list)
    producer: ProducerHost | None = None
    strikes: list[Strike] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    """How the hosts ended, when they were told to stop at the end."""
    oddities: list[str] = field(default_factory=list)

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    @property
    def everybody(self) -> list[Host]:
        return [*self.hosts, *([self.producer] if self.producer else [])]

    def pids(self) -> dict[int, str]:
        """Which host a process is on."""
        return {pid: host.name for host in self.hosts for pid in host.pids()}

    def holding(self, where: Mapping[int, str]) -> tuple[int | None, list[Held]]:
        """The database's time, and what these processes are running; nothing if the database is away."""
        try:
            with self.app.database.reading() as tx:
                pids = {str(id): pid for id, pid in tx.rows(PROCESSES) if pid in where}
                receipts: list[Any] = [loads(ids) for (ids,) in tx.rows(RECEIPTS)]
                ids = sorted({str(id) for receipt in receipts for id in receipt})
                rows = tx.rows(HELD, ids=ids) if ids else []
                held = [(str(id), n, pids[str(by)]) for id, n, by in rows if str(by) in pids]
                return int(tx.rows(NOW)[0][0]), [Held(id, n, where[pid], pid) for id, n, pid in held]
        except Exception:
            return None, []

    def start(self) -> None:
        """The producer first: it makes the tables."""
        assert self.producer is not None
        self.producer.start()
        eventually(
            lambda: any('"ready"' in file.read_text() for file in self.ledger.glob("*.jsonl")), STARTING
        )
        for host in self.hosts:
            host.start()
        eventually(lambda: self.alive() == self.expected, STARTING)

    @property
    def expected(self) -> int:
        return len(self.hosts) * (1 + terms.CHILDREN)

    def alive(self) -> int:
        return int(self.app.database.read(lambda tx: tx.rows("SELECT count(*) FROM {processes}"))[0][0])

    def stop_producer(self) -> None:
        assert self.producer is not None
        assert self.producer.worker is not None
        self.producer.busy = True
        self.producer.send(SIGTERM)
        self._await(self.producer, 15)

    def stop_hosts(self) -> None:
        """All at the same time, in order."""
        for host in self.hosts:
            host.send(SIGTERM)
        for host in self.hosts:
            self.codes[host.name] = self._await(host, terms.SHUTDOWN + 20)

    def _await(self, host: Host, seconds: float) -> int:
        """The exit code of one that was told to stop; the end of one that does not."""
        assert host.worker is not None
        try:
            return host.worker.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.oddities.append(f"{host.name} does not end: {host.worker.looks()}")
            host.kill()
            return host.worker.process.wait()

    def strays(self) -> list[str]:
        """Processes of this run that are still there."""
        needle = f"{terms.MARK}={self.mark}".encode()
        return [
            f"{entry.name}: {_command(entry)}"
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and int(entry.name) != os.getpid() and needle in _read(entry / "environ")
        ]


@contextmanager
def world(asked: Terms) -> Iterator[World]:
    """Server, network and hosts, not started yet; all gone at the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="penstock-chaos-", dir=in_memory())))
        folder.chmod(0o711)
        server = None
        if asked.database in SERVERS:
            server = stack.enter_context(SERVERS[asked.database](folder / "server"))
        url = server.create_database("chaos") if server else f"sqlite:///{folder / 'chaos.db'}"
        made = bare_world(asked, folder, url, server, stack)
        network = Network() if server else None
        if network is not None:
            stack.callback(network.close)
        if network is not None and server is not None:
            wanted = len(made.everybody) if asked.network == "namespaces" else 0
            cables: list[Cable | None] = [*stack.enter_context(laid(wanted))]
            for host, cable in zip_longest(made.everybody, cables):
                host.cable = cable
                host.proxy = Proxy(network, server.port, cable.near if cable else LOOPBACK)
                stack.callback(host.proxy.close)
                there = make_url(url).set(host=host.proxy.at, port=host.proxy.port)
                reached = there.render_as_string(hide_password=False)
                host.environment = {**host.environment, "PENSTOCK_DATABASE_URL": reached}
        yield made


def bare_world(asked: Terms, folder: Path, url: str, server: Server | None, stack: ExitStack) -> World:
    """Hosts that reach the database directly."""
    app = Penstock(url, connect_timeout=2, statement_timeout=20)
    stack.callback(app.close)
    programs = Programs(folder)
    stack.callback(programs.end)
    (folder / "sitecustomize.py").write_text(SKEWED)
    made = World(asked, folder, app, programs, server, mark=uuid4().hex)
    environment = terms.environment() | {
        terms.LEDGER: str(made.ledger),
        terms.SEED: str(asked.seed),
        terms.MARK: made.mark,
        "PENSTOCK_DATABASE_URL": url,
    }
    made.hosts = [Host(f"host{n}", folder, programs, environment) for n in range(1, asked.hosts + 1)]
    made.producer = ProducerHost("producer", folder, programs, environment)
    return made


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _command(process: Path) -> str:
    return _read(process / "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()[-120:]
