"""A PostgreSQL primary and its synchronous standby, on two ports that stay the same when the roles change."""

import os
from pathlib import Path
from signal import SIGKILL

import psycopg

from tests.servers.postgres import Postgres
from tests.servers.server import free_port
from tests.waiting import eventually

STREAMING = "select count(*) from pg_stat_replication where state = 'streaming'"
IN_STEP = f"{STREAMING} and sync_state in ('sync', 'quorum')"


class Standby(Postgres):
    """A copy of another server, which it follows."""

    def __init__(self, folder: Path, primary: Postgres, port: int) -> None:
        super().__init__(folder)
        self.primary = primary
        self.port = port

    def _create_data(self) -> None:
        source = ["-h", "127.0.0.1", "-p", str(self.primary.port), "-U", "postgres"]
        how = ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        self._run([self.programs / "pg_basebackup", *source, "-D", self.data, *how])


class Pair:
    """The primary waits with every commit until the standby has it, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.primary = Postgres(folder / "server-0")
        self.standby: Postgres | None = None
        self.count = 0
        self.primary.start()
        self.spare_port = free_port()

    def url(self, database: str) -> str:
        ports = sorted([self.primary.port, self.standby.port if self.standby else self.spare_port])
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write"

    def follow(self) -> None:
        """Start a standby, and let commits wait for it from now on."""
        self.count += 1
        self.standby = Standby(self.folder / f"server-{self.count}", self.primary, self.spare_port)
        self.standby.start()
        eventually(lambda: self._say(STREAMING) == 1, 60)  # until then no commit should have to wait for it
        self._say("alter system set synchronous_standby_names = '*'")
        self._say("select pg_reload_conf()")
        eventually(lambda: self._say(IN_STEP) == 1, 60)

    def fail_over(self) -> None:
        """The primary dies, as with its machine; the standby becomes primary."""
        dead, standby = self.primary, self.standby
        assert standby is not None
        os.kill(dead.process_id, SIGKILL)
        dead.stop(immediate=True)
        self.primary, self.standby, self.spare_port = standby, None, dead.port
        self._say("select pg_promote()")

    def stop(self) -> None:
        for server in (self.standby, self.primary):
            if server is not None:
                server.stop(immediate=True)

    def _say(self, statement: str) -> object:
        where = f"postgresql://postgres@127.0.0.1:{self.primary.port}/postgres"
        with psycopg.connect(where, autocommit=True, connect_timeout=60) as connection:
            row = connection.execute(statement.encode())
            return row.fetchone()[0] if row.description else None  # type: ignore[index]
