"""A package of many modules has a map of them in its docstring; and what it calls pure is pure."""

import ast
import re

import pytest

from tests.architecture.source import Module, modules

MANY = 25

MODULES = {module.name: module for module in modules()}
PACKAGES = [module for module in modules() if module.path.stem == "__init__"]
BELOW_PURE = ("penstock.errors", "penstock.values")
DATABASE = ("penstock.database", "penstock.queue", "sqlalchemy")


def _members(package: Module) -> list[str]:
    return [name.rpartition(".")[2] for name in MODULES if name.rpartition(".")[0] == package.name]


WITH_MAP = [package for package in PACKAGES if package.name != "penstock" and len(_members(package)) > MANY]


@pytest.mark.parametrize("package", WITH_MAP, ids=str)
def test_the_map_names_every_module_once(package: Module) -> None:
    mapped = [name for names in _map(package).values() for name in names]
    assert sorted(mapped) == sorted(_members(package))


def test_planning_is_made_of_what_is_pure() -> None:
    pure = _grouped("pure")
    assert "penstock.pipelines.plan" in pure
    impure = [
        f"{name} imports {imported}"
        for name in pure
        for imported in _imported(name)
        if imported.startswith(("penstock.", "sqlalchemy"))
        if not imported.startswith(BELOW_PURE) and imported not in pure
    ]
    assert not impure, "\n".join(impure)


def test_describing_knows_no_database() -> None:
    without = _grouped("no database")
    assert "penstock.pipelines.graph" in without
    impure = [
        f"{name} imports {imported}"
        for name in without
        for imported in _imported(name)
        if imported.startswith(DATABASE)
    ]
    assert not impure, "\n".join(impure)


def _imported(name: str) -> list[str]:
    return [item.module for item in MODULES[name].imports if not item.for_types_only]


def _grouped(kind: str) -> list[str]:
    """The modules in groups of this kind: `What they are for (kind):`."""
    return [
        f"{package.name}.{name}"
        for package in WITH_MAP
        for group, names in _map(package).items()
        if group.endswith(f"({kind})")
        for name in names
    ]


def _map(package: Module) -> dict[str, list[str]]:
    """The names of each group. A group is a line and what stands indented below it: `names, …: their share`."""
    groups: dict[str, list[str]] = {}
    group = ""
    for line in (ast.get_docstring(package.tree) or "").splitlines():
        if line.startswith(" "):
            groups[group] += re.findall(r"\w+", line.partition(":")[0])
        elif line.endswith(":"):
            group = line.removesuffix(":")
            groups[group] = []
    return groups
