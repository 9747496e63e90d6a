"""The first page: queues, and the processes that work on them."""

from __future__ import annotations

from penstock.dashboard.views import Page, View
from penstock.operate import overview as queries

COUNT_LIMIT = 10_000


def overview(view: View) -> Page:
    """All queues in numbers, counted up to a limit."""
    seen = view.read(queries.overview, view.app.settings.reap_after, COUNT_LIMIT)
    return Page("overview.html", "Overview", {"overview": seen})
