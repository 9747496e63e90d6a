"""The address of every page of the dashboard, from its own list of routes: a new page is tested without a line here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from penstock.dashboard.pages import ROUTES

VIEWS = {
    "/": ("period=day", "period=week"),
    "/jobs": ("status=failed", "text=acct"),
    "/search": ("q=o",),
    "/limits": ("after=a",),
}
"""Views of a page by its query string, where that needs no name."""
NAMED = {"/pipeline": "pipeline", "/schedule": "schedule"}
"""Pages of one thing that has a name: of which kind it is. The name is in the query string."""


def addresses(
    ids: Mapping[str, Sequence[str]],
    names: Mapping[str, Sequence[str]],
    views: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """Every page with its views; of those of one thing, one for each id or name. `ids` are by section, such as `runs`.

    `views` are further query strings by path, which name something that is there: an opened step, a key of a limit.
    """
    found: list[str] = []
    for route in ROUTES:
        if "{" in route.path:
            found += [re.sub(r"\{\w+\}", id, route.path) for id in ids.get(route.path.split("/")[1], ())]
        elif route.path in NAMED:
            found += [f"{route.path}?name={quote(name, '')}" for name in names.get(NAMED[route.path], ())]
        else:
            found.append(route.path)
    further = [*VIEWS.items(), *(views or {}).items()]
    return found + [f"{path}?{query}" for path, queries in further for query in queries]
