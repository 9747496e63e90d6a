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


DASHBOARD = """
import re, sys
import penstock
from penstock import Penstock
from penstock.dashboard import Viewer

assert sys.prefix in penstock.__file__, penstock.__file__
app = Penstock("sqlite:///dashboard.db")
told = []

@app.task(name="greet")
def greet(): ...

greet.enqueue()

def asked(path):
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "SCRIPT_NAME": "", "SERVER_NAME": "x", "SERVER_PORT": "80",
               "wsgi.url_scheme": "http", "wsgi.input": None}
    pages = app.dashboard(guard=lambda request: Viewer("ann", "all"))
    body = b"".join(pages.wsgi(environ, lambda status, headers: told.append((path, status))))
    return body.decode(errors="replace")

page = asked("/jobs")
assert "greet" in page
asked(re.search(r'href="([^"]+[.]css)', page)[1])
print([status for _, status in told])
"""
DJANGO = """
import sys
import penstock
from django.conf import settings

TASKS = {"default": {"BACKEND": "penstock.django.TaskBackend"}}
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django.db"}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "penstock.django"],
    TASKS=TASKS, ROOT_URLCONF="penstock.django.urls", USE_TZ=True, SECRET_KEY="x", ALLOWED_HOSTS=["*"],
)
import django
django.setup()
assert sys.prefix in penstock.__file__, penstock.__file__
from django.core.management import call_command
from django.test import Client
from penstock.django import app
from penstock.testing import drain

@app.task(name="greet")
def greet(name): return f"hello {name}"

job = greet.enqueue("world")
drain(app)
call_command("check")
print(job.result(timeout=5), Client().get("/").status_code)
"""


def in_the_environment(installed: Path, program: str) -> str:
    (installed / "program.py").write_text(program)
    return dist.run([str(installed / "env" / "bin" / "python"), "program.py"], installed)


def test_the_dashboard_of_the_wheel_answers(installed: Path) -> None:
    pytest.importorskip("jinja2", reason="Jinja2 is not installed")
    told = in_the_environment(installed, DASHBOARD)
    assert told.strip() == "['200 OK', '200 OK']"


def test_the_django_app_of_the_wheel_works(installed: Path) -> None:
    pytest.importorskip("django", reason="Django is not installed")
    pytest.importorskip("jinja2", reason="Jinja2 is not installed")
    told = in_the_environment(installed, DJANGO)
    assert told.strip().endswith("hello world 302"), told  # a stranger is sent to the login


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
