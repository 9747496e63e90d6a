"""Commands about waits: signal, token."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.app import Penstock
from penstock.cli.commands.enqueue import read_value
from penstock.cli.commands.runs import RunId, the_run
from penstock.cli.exit_codes import BAD, UsageError
from penstock.cli.options import App, AsJson, By, DatabaseUrl, Why, acting_on, opened
from penstock.cli.output import tell
from penstock.pipelines.lifecycle.signal_rows import UnknownSignal

Element = Annotated[
    str | None, typer.Option("--path", help="only this element of the expands around it, such as 3 or 3.0")
]


def signal(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="its id, in short or whole; with --token, VALUE"),
    ] = None,
    name: Annotated[str | None, typer.Argument(help="the signal")] = None,
    value: Annotated[str | None, typer.Argument(help="its value, as JSON or plain text")] = None,
    token: Annotated[
        str | None, typer.Option(help="a resume token, instead of RUN and NAME: signal --token TOKEN [VALUE]")
    ] = None,
    path: Element = None,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Give a signal that a step waits for, now or later."""
    with acting_on(app, database, by, why) as found:
        if token is not None:
            if name is not None or path is not None:
                raise UsageError(
                    "a token names its run and signal itself: penstock signal --token TOKEN [VALUE]"
                )
            resumed = found.resume(token, None if run is None else read_value(run))
            tell(f"{resumed.id} goes on", {resumed.id: True}, as_json=as_json)
            return
        if run is None or name is None:
            raise UsageError("which signal? penstock signal RUN NAME [VALUE], or --token TOKEN [VALUE]")
        _give(found, run, name, value, path, as_json)


def token(
    run: RunId,
    name: Annotated[str, typer.Argument(help="the signal")],
    expires: Annotated[str, typer.Option(metavar="AGE", help="for how long the token is valid")] = "1d",
    path: Element = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a signed token for a signal. Its holder can give that signal, once. Needs the app's secret."""
    with opened(app, database) as found:
        waiting = the_run(found, run)
        made = waiting.token(name, expires, _path(path))
    tell(made, {"run": waiting.id, "signal": name, "token": made}, as_json=as_json)


def _give(app: Penstock, prefix: str, name: str, value: str | None, path: str | None, as_json: bool) -> None:
    waiting = the_run(app, prefix)
    try:
        done = waiting.signal(name, None if value is None else read_value(value), _path(path))
    except UnknownSignal as error:
        raise UsageError(str(error)) from error
    word = f"has the signal {name}" if done else f"had the signal {name} before, and that one stands"
    tell(f"{waiting.id} {word}", {waiting.id: done}, as_json=as_json)
    if not done:
        raise typer.Exit(BAD)


def _path(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple([int(index) for index in text.split(".")])
    except ValueError:
        raise UsageError(f"--path {text!r}: give the index in each expand, such as 3 or 3.0") from None
