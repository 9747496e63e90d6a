"""A tiny public door: what `penstock` exports is what it says, and there is little of it."""

import ast
import subprocess
import sys
from types import ModuleType

import penstock
from tests.architecture.source import PACKAGE

MOST_NAMES = 24


def test_few_names_are_public() -> None:
    assert len(penstock.__all__) <= MOST_NAMES


def test_every_public_name_is_there() -> None:
    assert [name for name in penstock.__all__ if not hasattr(penstock, name)] == []


def test_names_are_listed_once_and_in_order() -> None:
    assert list(penstock.__all__) == sorted(set(penstock.__all__))


def test_nothing_else_can_be_seen() -> None:
    visible = {
        name
        for name, value in vars(penstock).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    }
    assert visible <= set(penstock.__all__)


def test_the_door_only_passes_names_on() -> None:
    """No code in `__init__`: imports, `__all__` and the version; and what brings in the rest when it is wanted."""
    body = ast.parse((PACKAGE / "__init__.py").read_text()).body
    passing = ast.Expr | ast.Import | ast.ImportFrom | ast.Assign | ast.If
    code = [node for node in body if not isinstance(node, passing)]
    assert [getattr(node, "name", node.lineno) for node in code] == ["__getattr__", "__dir__"]


def test_what_is_wanted_later_is_not_there_at_first() -> None:
    """A worker without reconcilers is the size of what it uses."""
    heavy = ("sqlalchemy", "alembic", "psycopg", "pymysql", "sqlite3")
    script = f"import sys, penstock; print([name for name in {heavy} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_what_is_wanted_later_can_be_seen() -> None:
    assert set(penstock.__all__) <= set(dir(penstock))


def test_errors_can_be_caught_by_a_program_that_has_only_imported_the_package() -> None:
    script = "import penstock; print(issubclass(penstock.errors.JobFailed, penstock.errors.PenstockError))"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "True"
