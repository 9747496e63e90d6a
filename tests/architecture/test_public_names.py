"""A tiny public door: what `penstock` exports is what it says, and there is little of it."""

import ast
from types import ModuleType

import penstock
from tests.architecture.source import PACKAGE

MOST_NAMES = 19


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
    """No code in `__init__`: imports, `__all__` and the version."""
    body = ast.parse((PACKAGE / "__init__.py").read_text()).body
    assert not [node.lineno for node in body if not isinstance(node, ast.Expr | ast.ImportFrom | ast.Assign)]
