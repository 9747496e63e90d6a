"""What the package uses is what it asks for, so that a plain install is enough."""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BY_MODULE = {"pymysql": "PyMySQL", "sqlalchemy": "SQLAlchemy", "pydantic_core": "pydantic"}
OPTIONAL = {
    "opentelemetry",
    "prometheus_client",
    "sentry_sdk",
    "structlog",
    "django",
    "asyncpg",
    "jinja2",
    "mcp",
    "pytest",
    "asgiref",
    "flask",
    "werkzeug",
    "click",
}


def asked_for() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {re.split(r"[\[<>=!~ ]", line)[0] for line in project["dependencies"]}


def used() -> set[str]:
    """The packages whose modules are imported; and greenlet, without which SQLAlchemy's async functions raise."""
    found = set()
    for path in (ROOT / "penstock").rglob("*.py"):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
        if "greenlet_spawn" in source or "await_only" in source:
            found.add("greenlet")
    roots = {name.partition(".")[0] for name in found} - sys.stdlib_module_names - {"penstock"}
    return {BY_MODULE.get(name, name) for name in roots - OPTIONAL}


def test_everything_used_is_asked_for() -> None:
    assert used() - asked_for() == set()
    assert "greenlet" in used()
