"""django/application: Django projects with test suites of their own: the example, and the contract of
`django.tasks`.
"""

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.forkserver import Program, finished, said_in
from tests.integrations.servers import fresh_process

django = pytest.importorskip("django", reason="Django is not installed")
ROOT = Path(__file__).resolve().parents[2]
SHOP = ROOT / "examples" / "django_shop"
PYMYSQL = "import pymysql; pymysql.install_as_MySQLdb()\n"
"""Django speaks to MySQL through mysqlclient; PyMySQL takes its place if the program says so at its start."""


def succeeded(
    arguments: Sequence[str], folder: Path, home: Path, url: str, more: Mapping[str, str] | None = None
) -> str:
    """Run a program of a Django project to its good end; what it said."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    (folder / "sitecustomize.py").write_text(PYMYSQL)
    path = os.pathsep.join([str(home), str(folder), str(ROOT)])
    environment = ours | {"DATABASE_URL": url, "PYTHONPATH": path, **(more or {})}
    done = finished(Program(arguments, folder, environment, *said_in(folder)))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


has_tasks = any(map(find_spec, ["django_tasks", *(["django.tasks"] if django.VERSION >= (6,) else [])]))
needs_django_tasks = pytest.mark.skipif(
    not has_tasks, reason="neither django.tasks nor django-tasks is installed"
)


@needs_django_tasks
def test_the_contract_of_django_tasks(empty_database_url: str, tmp_path: Path) -> None:
    arguments = [
        "-m",
        "django",
        "test",
        "tests.django.contract",
        "--settings",
        "tests.django.contract.settings",
    ]
    said = succeeded(arguments, tmp_path, ROOT, empty_database_url)
    assert "Ran 37 tests" in said, said


@needs_django_tasks
def test_the_example(empty_database_url: str, tmp_path: Path) -> None:
    # MySQL's databases are copied by a program of its own, which may not be there.
    beside = () if empty_database_url.startswith("mysql") else ("--parallel", "2")
    (tmp_path / "sitecustomize.py").write_text(PYMYSQL)
    env = {"DATABASE_URL": empty_database_url, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    # A real process: in one that comes from a fork server, Django starts no others for its tests.
    with fresh_process(tmp_path, str(SHOP / "manage.py"), "test", "shop", *beside, env=env) as (process, log):
        assert process.wait(100) == 0, log()
        assert "Ran 9 tests" in log()
