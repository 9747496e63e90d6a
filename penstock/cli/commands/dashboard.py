"""`penstock dashboard`: the pages of an app in a browser on this machine."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exit_codes import out
from penstock.cli.options import DatabaseUrl, opened
from penstock.values.lazy_import import Lazy

if TYPE_CHECKING:
    from penstock.dashboard import local_server
else:
    local_server = Lazy("penstock.dashboard.local_server")

PORT = 8321


def dashboard(
    target: Annotated[str | None, typer.Argument(metavar="MODULE:APP", help="default: $PENSTOCK_APP")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free")] = PORT,
    read_only: Annotated[bool, typer.Option("--read-only", help="look, and change nothing")] = False,
    database: DatabaseUrl = None,
) -> None:
    """Serve the dashboard on this machine. Prints a link that works once; Ctrl-C ends it."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        # The shell may have them ignored, as in a script that starts the program in the background.
        signal.signal(ending, signal.default_int_handler)
    with opened(target, database) as app, suppress(KeyboardInterrupt):
        server = local_server.LocalServer(app, port, read_only=read_only)
        out.print(f"The dashboard of {app.settings.shown_url} is at", markup=False)
        out.print(f"  {server.link()}", markup=False, soft_wrap=True)
        out.print("The link works once. Ctrl-C ends it.", markup=False)
        server.serve()
