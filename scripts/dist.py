"""Build the wheel and the sdist, check both, and run hello world with each in a clean environment.

    python scripts/dist.py [FOLDER]     into FOLDER, by default dist/

Nothing outside of the folder is changed: the build works on a copy of the tree.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOP = ("pyproject.toml", "README.md", "LICENSE")
HELLO = """
import pathlib, sys
import penstock
from penstock.testing import drain

assert sys.prefix in penstock.__file__, penstock.__file__
app = penstock.Penstock("sqlite:///hello.db")

@app.task
async def greet(name: str) -> str:
    return f"hello {name}"

job = greet.enqueue("world")
drain(app)
print(job.result(timeout=5), penstock.__version__)
"""


class Broken(SystemExit):
    """A distribution that must not be published; the message says why."""


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    wheel, sdist = build(folder)
    check_wheel(wheel)
    check_sdist(sdist)
    for made in (wheel, sdist):
        with tempfile.TemporaryDirectory() as place:
            python = clean_environment(Path(place) / "env")
            pins = ["--constraint", str(ROOT / "requirements-dev.txt")]
            run([python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *pins, str(made)])
            print(f"{made.name}: {hello_world(python, Path(place))}")


def build(folder: Path) -> tuple[Path, Path]:
    """Build both, with the setuptools that is installed here: the wheel from what the sdist holds."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "tree"
        tree.mkdir()
        for name in TOP:
            shutil.copy(ROOT / name, tree)
        shutil.copytree(ROOT / "penstock", tree / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
        sdist = folder / _made(tree, "build_sdist", folder)
        shutil.unpack_archive(sdist, place)
        (unpacked,) = Path(place).glob("penstock-*")
        return folder / _made(unpacked, "build_wheel", folder), sdist


def _made(tree: Path, hook: str, folder: Path) -> str:
    code = f"from setuptools import build_meta; print(build_meta.{hook}({str(folder)!r}))"
    return run([sys.executable, "-c", code], tree).splitlines()[-1]


def check_wheel(wheel: Path) -> None:
    """The wheel holds every file of the package and nothing else, and says who it is."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (described,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(described).decode()
    _compare(wheel.name, names, set(package_files()))
    check_metadata(wheel.name, metadata)


def check_sdist(sdist: Path) -> None:
    """The sdist holds every file of the package, and what is needed to build it; no tests."""
    with tarfile.open(sdist) as archive:
        top = os.path.commonpath(archive.getnames())
        names = {str(Path(each.name).relative_to(top)) for each in archive.getmembers() if each.isfile()}
        described = archive.extractfile(f"{top}/PKG-INFO")
        assert described is not None
        metadata = described.read().decode()
    made = {"PKG-INFO", "setup.cfg"}
    kept = {name for name in names - made if not name.startswith("penstock.egg-info/")}
    _compare(sdist.name, kept, {*package_files(), *TOP})
    check_metadata(sdist.name, metadata)


def check_metadata(name: str, text: str) -> None:
    """The fields that an index and pip read, and a description to show."""
    found = HeaderParser().parsestr(text)
    wanted = {
        "Name": "penstock",
        "Version": version(),
        "Description-Content-Type": "text/markdown",
        "License-Expression": "MIT",
        "Requires-Python": ">=3.11",
    }
    for field, value in wanted.items():
        if found[field] != value:
            raise Broken(f"{name}: {field} is {found[field]!r}, not {value!r}")
    if "# Penstock" not in str(found.get_payload()):
        raise Broken(f"{name}: the README is not its description")


def version() -> str:
    """The version that the package says it has."""
    text = (ROOT / "penstock" / "__init__.py").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("__version__")]
    return line.split('"')[1]


def package_files() -> Iterator[str]:
    """Every file of the package, code and data."""
    for path in (ROOT / "penstock").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(path.relative_to(ROOT))


def clean_environment(folder: Path, *options: str) -> str:
    """A virtual environment with nothing in it; its Python."""
    run([sys.executable, "-m", "venv", *options, str(folder)])
    return str(folder / "bin" / "python")


def hello_world(python: str, folder: Path) -> str:
    """Enqueue a job and run it, and ask the installed command for its version, outside of the source tree."""
    (folder / "hello.py").write_text(HELLO)
    said = run([python, "hello.py"], folder).strip()
    if said != f"hello world {version()}":
        raise Broken(f"hello world said: {said}")
    run([str(Path(python).parent / "penstock"), "check", "hello:app"], folder)
    return said


def run(command: list[str], folder: Path = ROOT) -> str:
    ours = ("PENSTOCK_", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Broken(f"{' '.join(command)}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def _compare(name: str, there: set[str], wanted: set[str]) -> None:
    if missing := sorted(wanted - there):
        raise Broken(f"{name} lacks {', '.join(missing[:10])}")
    if more := sorted(there - wanted):
        raise Broken(f"{name} should not hold {', '.join(more[:10])}")


if __name__ == "__main__":
    main()
