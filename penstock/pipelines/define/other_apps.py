"""Refuses steps of another app's database: a worker of that app would never see them."""

from __future__ import annotations

from typing import Any

from penstock.errors import DefinitionError


def check_reach(host: Any, callee: Any) -> None:
    """Raise `DefinitionError` for a task or pipeline of an app on another database, alone or in a list."""
    if isinstance(callee, list | tuple):
        for one in callee:
            check_reach(host, one)
    theirs = getattr(callee, "host", None)
    if host is None or theirs is None or theirs is host or _place(theirs) == _place(host):
        return
    if callee.name not in host.tasks and callee.name not in host.pipelines:
        raise DefinitionError(
            f"{callee.name!r} belongs to another app, on another database: no worker would ever run it here. "
            "Declare it on this app"
        )


def check_found(host: Any, pipeline: Any) -> None:
    """Raise `DefinitionError` for a flow that is not the one registered under its name, by which a child run finds
    it."""
    known = getattr(host, "pipelines", {}).get(pipeline.name)
    if known is not None and _verbs_of(known) != _verbs_of(pipeline):
        raise DefinitionError(
            f"there are several flows named {pipeline.name!r}, and this is not the one that was declared last, which a "
            "child run would be: begin each with a name of its own, app.flow(...)"
        )


def _verbs_of(pipeline: Any) -> tuple[object, ...] | None:
    """The verbs and the start that make a flow. Its options are a step's."""
    return (pipeline.first_step, *pipeline.verbs) if hasattr(pipeline, "verbs") else None


def _place(host: Any) -> tuple[object, ...]:
    settings = host.settings
    return settings.database_url, settings.schema, settings.table_prefix
