"""The distributions as a user installs them: contents, hello world, and what type checkers make of them.

The wheel is built from the sdist and installed into an environment of its own, which has the dependencies of this one
and nothing else of it: no source tree, no editable install.
"""

import re
import site
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

from scripts import dist
from tests.docs.test_snippets import ROOT

EXAMPLES = ROOT / "tests" / "typing"
WRONG = "wrong_uses.py"
ERROR = re.compile(r"([a-z_]+\.py):(\d+)(?::\d+)?(?: -|:) error")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed in `env`, and the examples beside it."""
    folder = tmp_path_factory.mktemp("distribution")
    wheel, sdist = dist.build(folder / "dist")
    dist.check_wheel(wheel)
    dist.check_sdist(sdist)
    python = dist.clean_environment(folder / "env", "--without-pip")
    (packages,) = (folder / "env").glob("lib/python*/site-packages")
    dependencies = [path for path in site.getsitepackages() if Path(path).is_dir()]
    (packages / "dependencies.pth").write_text("\n".join(dependencies))
    dist.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", str(wheel)]
    )
    copytree(EXAMPLES, folder / "tests" / "typing", ignore=lambda *_: ["__pycache__"])
    return folder


def test_hello_world_runs_with_the_wheel(installed: Path) -> None:
    assert dist.hello_world(str(installed / "env" / "bin" / "python"), installed).startswith("hello world")


def test_mypy_finds_the_wrong_uses_and_no_others(installed: Path) -> None:
    cache = ROOT / ".cache" / "mypy-installed"
    options = ["--strict", "--explicit-package-bases", f"--cache-dir={cache}"]
    python = f"--python-executable={installed / 'env' / 'bin' / 'python'}"
    assert found(installed, [sys.executable, "-m", "mypy", *options, python]) == marked()


def test_pyright_finds_the_wrong_uses_and_no_others(installed: Path) -> None:
    """Pyright and the Node that it runs on come from wheels that requirements-dev.txt pins; nothing is downloaded."""
    python = ["--pythonpath", str(installed / "env" / "bin" / "python")]
    assert found(installed, [sys.executable, "-m", "pyright", *python]) == marked()


def found(folder: Path, checker: list[str]) -> set[tuple[str, int]]:
    """File and line of each error."""
    files = sorted(path.name for path in (folder / "tests" / "typing").glob("*.py"))
    done = subprocess.run(
        [*checker, *[f"tests/typing/{name}" for name in files]], cwd=folder, capture_output=True, text=True
    )
    assert "Found" in done.stdout or "errors," in done.stdout, (
        f"it did not run:\n{done.stdout}\n{done.stderr}"
    )
    return {(Path(name).name, int(line)) for name, line in ERROR.findall(done.stdout)}


def marked() -> set[tuple[str, int]]:
    """The lines that have to be found."""
    lines = (EXAMPLES / WRONG).read_text().splitlines()
    return {(WRONG, number) for number, line in enumerate(lines, 1) if "# wrong" in line}
