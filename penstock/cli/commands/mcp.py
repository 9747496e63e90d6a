"""`penstock mcp`: lets an assistant read the state of jobs and runs, over stdin and stdout."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exit_codes import UsageError
from penstock.cli.load_app import find_app, names_app
from penstock.cli.options import DatabaseUrl
from penstock.values.lazy_import import Lazy

if TYPE_CHECKING:
    from penstock import assistant
else:
    assistant = Lazy("penstock.assistant")


def mcp(
    target: Annotated[str | None, typer.Argument(metavar="MODULE:APP", help="default: $PENSTOCK_APP")] = None,
    allow_acts: Annotated[
        bool,
        typer.Option("--allow-acts", help="also tools that change something: retry, cancel, signal, ..."),
    ] = False,
    database: DatabaseUrl = None,
) -> None:
    """Serve an assistant, by the Model Context Protocol over stdin and stdout. It reads; with --allow-acts it acts."""
    with redirect_stdout(
        sys.stderr
    ):  # the text that a module prints when it is imported is not part of the protocol
        app = find_app(target, database)
    try:
        try:
            server = assistant.assistant_server(app, acts=allow_acts, of_app=names_app(target, database))
        except ModuleNotFoundError as error:
            raise UsageError(f"{error}. Install what it needs: pip install 'penstock[mcp]'") from error
        server.run("stdio")
    finally:
        app.close()
