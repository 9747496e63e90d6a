"""SQL has its rooms, and only the database layer knows which database it is."""

import ast
import re

from tests.architecture.source import Module, modules

SQL_ROOMS = {"database", "schema", "queue", "pipelines", "reconcile", "schedules", "operate", "run_context"}
DATABASES = {"postgresql", "postgres", "mysql", "mariadb", "sqlite"}
ASKS_WHICH_DATABASE = {"settings", "database", "schema"}

STATEMENT = re.compile(
    r"\b(select\s[^;]*\sfrom|insert\s+(ignore\s+)?into|update\s+\S+\s+set|delete\s+from"
    r"|(create|alter|drop|truncate)\s+(unique\s+)?(table|index|database|schema))\s",
    re.IGNORECASE,
)
STATEMENT_BUILDERS = {"select", "insert", "update", "delete", "text"}

MODULES = modules()


def test_sql_stays_in_its_rooms() -> None:
    outside = [
        f"{module}:{line}: {text.strip()[:60]}"
        for module in MODULES
        if module.layer not in SQL_ROOMS
        for line, text in module.strings
        if STATEMENT.search(f"{text} ")
    ]
    assert not outside, "\n".join(outside)


def test_statements_are_not_built_outside_the_rooms() -> None:
    outside = [
        f"{module}:{item.line} imports {item.name}"
        for module in MODULES
        if module.layer not in SQL_ROOMS
        for item in module.imports
        if item.module.partition(".")[0] == "sqlalchemy" and item.name in STATEMENT_BUILDERS
    ]
    assert not outside, "\n".join(outside)


def test_only_the_database_layer_asks_which_database_it_is() -> None:
    asking = [
        f"{module}:{line}"
        for module in MODULES
        if module.layer not in ASKS_WHICH_DATABASE
        for line in _comparisons_with_a_database(module)
    ]
    assert not asking, "\n".join(asking)


def _comparisons_with_a_database(module: Module) -> list[int]:
    lines = []
    for node in ast.walk(module.tree):
        match node:
            case ast.Compare(left=left, comparators=comparators):
                compared = [left, *comparators]
            case ast.MatchValue(value=value):
                compared = [value]
            case _:
                continue
        if any(isinstance(value, ast.Constant) and value.value in DATABASES for value in compared):
            lines.append(node.lineno)
    return lines
