"""The command for probes: is this host's part of the installation alive?"""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.frame import BAD, Refusal, out
from penstock.cli.options import App, AsJson, DatabaseUrl, opened
from penstock.cli.output import show_json, span
from penstock.operate.processes import list_processes
from penstock.runtime.dwelling import host_name
from penstock.values.readers import nearest

ROLES = ("all", "worker", "advancer", "reconciler")
SUPERVISOR = "supervisor"


def health(
    role: Annotated[str | None, typer.Option(help="only processes with this role, such as worker")] = None,
    everywhere: Annotated[bool, typer.Option("--everywhere", help="on any host, not only this one")] = False,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a worker of this host is alive. As the database sees it; exit code 1: none is."""
    if role is not None and role not in ROLES:
        raise Refusal(f"there is no role {role!r}{nearest(role, ROLES)}")
    with opened(app, database) as found:
        rows = found.database.read(list_processes)
        patience = found.settings.reap_after
    here = host_name()
    asked = [
        row
        for row in rows
        if row.role != SUPERVISOR and role in (None, row.role) and (everywhere or row.host == here)
    ]
    alive = [row for row in asked if not row.is_silent(patience)]
    if as_json:
        show_json({"healthy": bool(alive), "alive": alive})
    else:
        what = f"{role or 'worker'} process {'anywhere' if everywhere else f'on {here}'}"
        heard = min([row.silence for row in asked], default=None)
        last = "" if heard is None else f"; one was heard of {span(heard)} ago"
        told = f"{len(alive)} alive" if alive else f"no {what} is alive{last}"
        out.print(told, markup=False)
    if not alive:
        raise typer.Exit(BAD)
