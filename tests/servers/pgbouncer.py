"""PgBouncer before a PostgreSQL server: from the system, else from packages unpacked into the cache folder."""

import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import psycopg
from sqlalchemy import make_url

from tests.servers.admin import PostgresAdmin
from tests.servers.debian import library_folders, unpacked
from tests.servers.server import Server, make_folder

PROGRAM = "usr/sbin/pgbouncer"
HINT = "Install PgBouncer."
SETTINGS = {"default_pool_size": "5", "auth_type": "any", "unix_socket_dir": "", "max_client_conn": "200"}


class PgBouncer(Server):
    """A pool in one mode, to the server at a URL; `refuses`: what a connection begins with, as it does by default.

    `settings`: more of its own, such as `max_db_connections`.
    """

    kind = "pgbouncer"
    graceful = signal.SIGTERM
    abrupt = signal.SIGKILL

    def __init__(
        self, folder: Path, server: str, mode: str, *, refuses: bool = True, **settings: object
    ) -> None:
        super().__init__(folder)
        self.settings = settings
        self.server = make_url(server)
        self.mode = mode
        self.refuses = refuses
        self.program, self.libraries = _program()

    @property
    def admin(self) -> PostgresAdmin:
        return PostgresAdmin(f"postgresql://postgres@127.0.0.1:{self.port}/postgres")

    def through(self, url: str) -> str:
        """The same database, by way of the pool."""
        return make_url(url).set(port=self.port, query={}).render_as_string(hide_password=False)

    def stats(self, query: str) -> list[tuple[object, ...]]:
        """What it says of itself, such as `SHOW POOLS`."""
        where = f"postgresql://postgres@127.0.0.1:{self.port}/pgbouncer"
        with psycopg.connect(where, autocommit=True, prepare_threshold=None) as connection:
            return psycopg.ClientCursor(connection).execute(query.encode()).fetchall()

    def _create_data(self) -> None:
        make_folder(self.data)

    def _command(self) -> Sequence[str | Path]:
        where = f"host={self.server.host} port={self.server.port} user={self.server.username}"
        settings = SETTINGS | {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "pool_mode": self.mode,
            "ignore_startup_parameters": "extra_float_digits"
            if self.refuses
            else "extra_float_digits,options",
            **self.settings,
        }
        lines = [
            f"[databases]\n* = {where}",
            "[pgbouncer]",
            *[f"{name} = {value}" for name, value in settings.items()],
        ]
        file = self.folder / "pgbouncer.ini"
        file.write_text("\n".join(lines) + "\n")
        file.chmod(0o644)
        return [self.program, file]

    def _environment(self) -> dict[str, str]:
        return dict(os.environ) | {"LD_LIBRARY_PATH": ":".join(self.libraries)}


def _program() -> tuple[Path, list[str]]:
    if found := shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])):
        return Path(found), []
    tree = unpacked("pgbouncer", ["pgbouncer"], [PROGRAM], HINT)
    return tree / PROGRAM, library_folders(tree)
