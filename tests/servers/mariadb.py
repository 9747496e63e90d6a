"""MariaDB (or MySQL): from the system, else from distribution packages unpacked into the cache folder."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from tests.servers.admin import MariadbAdmin
from tests.servers.binaries import MariadbPrograms, mariadb_programs
from tests.servers.pristine import made_once
from tests.servers.server import Server, make_folder

EVERYTHING = '{"access":18446744073709551615}'
SYSTEM_TABLES = ["system_tables", "performance_tables", "system_tables_data"]


class Mariadb(Server):
    kind = "mariadb"
    graceful = signal.SIGTERM
    abrupt = signal.SIGKILL

    def __init__(self, folder: Path, programs: MariadbPrograms | None = None) -> None:
        super().__init__(folder)
        self.programs = programs or mariadb_programs()

    @property
    def admin(self) -> MariadbAdmin:
        return MariadbAdmin(f"mysql://root@127.0.0.1:{self.port}/mysql")

    def _create_data(self) -> None:
        make_folder(self._temporary)
        if not self.programs.is_mariadb:  # and its data has the name of one server in it
            return self._run([*self._basics(), "--initialize-insecure"])
        return made_once(self.data, str(self.programs.server), self._bootstrap)

    def _bootstrap(self) -> None:
        make_folder(self.data)
        bootstrap = ["--bootstrap", "--enforce-storage-engine=", "--max-allowed-packet=8M"]
        self._run([*self._basics(), *bootstrap], script=self._system_tables())

    def _system_tables(self) -> bytes:
        """What `mariadb-install-db` feeds to the server; the script does not work from an unpacked tree."""
        start = "create database mysql;\nuse mysql;\nset @auth_root_socket=null;\n"
        tables = "".join(self.programs.script(name).read_text() for name in SYSTEM_TABLES)
        roots = ", ".join(f"('{host}', 'root', '{EVERYTHING}')" for host in ("localhost", "127.0.0.1"))
        return f"{start}{tables}\nreplace into global_priv values {roots};\n".encode()

    def _command(self) -> Sequence[str | Path]:
        return [
            *self._basics(),
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self.folder / 's'}",
            f"--pid-file={self.folder / 'pid'}",
            "--default-time-zone=+05:30",  # of no test machine, so that a local time taken for UTC shows
            "--max-connections=300",
            "--innodb-flush-log-at-trx-commit=2",  # survives a crash of the server, not of the machine
            "--innodb-buffer-pool-size=128M",
        ]

    def _basics(self) -> list[str | Path]:
        programs = self.programs
        # MySQL wants a folder that only its package's installation makes, for files that are not read here.
        small = (
            ["--innodb-log-file-size=8M", "--skip-name-resolve"]
            if programs.is_mariadb
            else ["--secure-file-priv=", "--user=root" if os.geteuid() == 0 else "--mysqlx=OFF"]
        )
        # A server that starts removes what it finds in the folder for temporary tables: also another server's.
        own = [f"--datadir={self.data}", f"--tmpdir={self._temporary}"]
        return [*programs.loader, programs.server, "--no-defaults", *own, *programs.options, *small]

    @property
    def _temporary(self) -> Path:
        return self.folder / "tmp"

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.programs.environment}
