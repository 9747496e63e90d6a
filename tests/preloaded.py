"""What every process would do first, done once, before it is forked from ours: no connection, no thread.

The tables are described for every kind of database, pydantic has looked for its plugins and imported what it puts off,
and typer has made the commands: that is most of what a worker does before its first statement.
"""

import sys
from functools import cache
from importlib import import_module
from types import ModuleType

import pydantic.fields
import pydantic.types
import typer.main

import penstock.cli
from penstock.database.database import Database
from penstock.schema import catalog
from penstock.settings import Settings


def remember(module: ModuleType, name: str) -> None:
    """Let a function of that module be called once for each of its arguments."""
    setattr(module, name, cache(getattr(module, name)))


LATER = (
    "database.user.statements",
    "operate.check",
    "operate.doctor",
    "reconcile.hint",
    "reconcile.row_lock",
    "runtime.reconcilers.runner",
    "schema.migrate",
    "schema.tables",
)
for name in LATER:
    import_module(f"penstock.{name}")
for url in ("sqlite://", "postgresql://host/database", "mysql://host/database"):
    catalog.describe(Database(Settings.load(database_url=url, environ={})))
pydantic.TypeAdapter(int)

COMMAND_LINE = sys.modules[penstock.cli.main.__module__]
remember(COMMAND_LINE, "build")
remember(typer.main, "get_command")
typer.main.get_command(COMMAND_LINE.build())
