"""Options that several commands share, and the app that they select."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from penstock.app import Penstock
from penstock.cli.exit_codes import UNAVAILABLE, UsageError
from penstock.cli.load_app import find_app
from penstock.schema import version
from penstock.values.actor import Acting, this_process

App = Annotated[
    str | None, typer.Option("--app", metavar="MODULE:APP", help="the app; default: $PENSTOCK_APP")
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database", metavar="URL", help="a database without its app; default: $PENSTOCK_DATABASE_URL"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]
By = Annotated[str | None, typer.Option("--by", metavar="WHO", help="who does this; default: user@host")]
Why = Annotated[str | None, typer.Option("--why", help="why, for the audit trail")]


def acting(by: str | None, why: str | None) -> Acting:
    """Set the actor of the command's acts: the one that is named, else the user of the command line."""
    return Acting(by if by is not None else this_process(), why)


@contextmanager
def acting_on(app: str | None, database: str | None, by: str | None, why: str | None) -> Iterator[Penstock]:
    """The app that a command changes, with the actor named."""
    with acting(by, why), opened(app, database) as found:
        yield found


@contextmanager
def opened(app: str | None, database: str | None, *, checked: bool = True) -> Iterator[Penstock]:
    """The app that a command works on; it is closed at the end. `checked`: refuse if its schema is missing or old; the
    schema is never changed."""
    found = find_app(app, database)
    try:
        _refuse_missing_file(found)
        if checked:
            version.ensure(found.database, upgrade=False)
        yield found
    finally:
        found.close()


def _refuse_missing_file(app: Penstock) -> None:
    """Refuse a SQLite file that does not exist: reading a database must not create one."""
    name, dialect = app.database.url.database, app.database.dialect
    if dialect.one_writer and not dialect.in_memory and name and not os.path.exists(name):
        ways = (
            "Name the app (--app shop:app) or the database (--database URL), or create it: penstock migrate"
        )
        raise UsageError(f"there is no database file {name}. {ways}", UNAVAILABLE)
