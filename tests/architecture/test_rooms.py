"""Folders stay small enough to be seen at once, a class name means one thing, and what is called pure is pure."""

import ast
from collections import Counter, defaultdict

import pytest

from tests.architecture.source import PACKAGE, Module, modules

MOST_MODULES = 20
MIGRATIONS = PACKAGE / "schema" / "migrations"

MODULES = [module for module in modules() if MIGRATIONS not in module.path.parents]
NAMES = {module.name for module in modules()}

PURE = ("penstock.values", "penstock.pipelines.model", "penstock.pipelines.plan")
BELOW_PURE = ("penstock.errors", *PURE)
WITHOUT_DATABASE = ("penstock.pipelines.define", *PURE)
DATABASE = ("penstock.database", "penstock.queue", "penstock.schema", "sqlalchemy")

TWICE: dict[str, str] = {
    "LeaseLost": "the error that a handler sees, and the event of the same name that listeners already use",
}
"""Class names with two meanings that have to stay, and why."""


def test_a_folder_has_few_modules() -> None:
    counts = Counter(module.path.parent.relative_to(PACKAGE).as_posix() for module in MODULES)
    assert not {folder: count for folder, count in counts.items() if count > MOST_MODULES}


def test_every_folder_says_what_happens_there() -> None:
    silent = [str(module) for module in MODULES if module.path.stem == "__init__" and not module.docstring]
    assert not silent


def test_a_class_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(module))
    assert {name for name, places in homes.items() if len(places) > 1} == TWICE.keys()


@pytest.mark.parametrize("module", [m for m in MODULES if m.is_in(*PURE)], ids=str)
def test_what_is_pure_imports_only_what_is_pure(module: Module) -> None:
    ours = [name for name in module.imported if name.startswith(("penstock.", "sqlalchemy"))]
    assert not [name for name in ours if not name.startswith(BELOW_PURE)]


@pytest.mark.parametrize("module", [m for m in MODULES if m.is_in(*WITHOUT_DATABASE)], ids=str)
def test_describing_knows_no_database(module: Module) -> None:
    assert not [name for name in module.imported if name.startswith(DATABASE)]


def test_one_protocol_describes_the_app() -> None:
    """A second one would say again what the layers below may ask of the app."""
    parts = {"settings", "database", "events", "wakeups", "middlewares", "find_task"}
    described = [
        node.name
        for module in MODULES
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and "Protocol" in {ast.unparse(base) for base in node.bases}
        if parts & {getattr(item, "name", ast.unparse(getattr(item, "target", item))) for item in node.body}
    ]
    assert described == ["AppServices"]
