"""An environment with Django 6 on a newer Python than that of the tests, made once and kept in the cache folder.

Django 6 needs Python 3.12. The tests run on 3.11 too, where Django is 5.2 and its tasks are in a package of their own.
"""

import fcntl
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

from tests.servers.debian import CACHE
from tests.servers.errors import Unavailable

OLDEST = (3, 12)
FOLDER = "django-6"
WANTED = ["django>=6,<7", "Jinja2"]
INSTALL_SECONDS = 240


def python_with_django_6() -> Path:
    """The interpreter of the environment; it has what Penstock depends on, and not Penstock itself."""
    CACHE.mkdir(exist_ok=True)
    made = CACHE / FOLDER
    with (CACHE / f"{FOLDER}.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not (made / "complete").exists():
            shutil.rmtree(made, ignore_errors=True)
            _make(made)
    return made / "bin" / "python"


def _make(folder: Path) -> None:
    python = next(_newer_pythons(), None)
    if python is None:
        raise Unavailable(f"Django 6 needs Python {'.'.join(map(str, OLDEST))} or newer, and none is found")
    _run([python, "-m", "venv", str(folder)])
    install = ["-m", "pip", "install", "--quiet", "--no-compile"]  # most of it is never imported
    _run([str(folder / "bin" / "python"), *install, *WANTED, *_dependencies()])
    (folder / "complete").touch()


def _newer_pythons() -> Iterator[str]:
    """Interpreters that run and are new enough: this one, those on the path, those of pyenv and uv."""
    named = [found for minor in range(20, OLDEST[1] - 1, -1) if (found := shutil.which(f"python3.{minor}"))]
    kept = [*Path.home().glob(".pyenv/versions/3.*/bin/python"), *_of_uv()]
    for candidate in [sys.executable, *named, *map(str, sorted(kept, reverse=True))]:
        told = subprocess.run([candidate, "--version"], capture_output=True, text=True)
        version = re.search(r"Python (\d+)\.(\d+)", told.stdout)
        if told.returncode == 0 and version and (int(version[1]), int(version[2])) >= OLDEST:
            yield candidate


def _of_uv() -> Iterator[Path]:
    return Path.home().glob(".local/share/uv/python/cpython-3.*/bin/python3")


def _dependencies() -> list[str]:
    return [each for each in requires("penstock") or () if "extra ==" not in each]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"Django 6 could not be installed within {INSTALL_SECONDS} s") from error
    if done.returncode != 0:
        raise Unavailable(f"Django 6 cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
