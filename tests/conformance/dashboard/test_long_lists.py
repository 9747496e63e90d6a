"""dashboard/pages: Lists of 10,000 rows: pages of a size, one after the other, without a row missing or shown twice."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from penstock import Penstock
from tests.conformance.dashboard.browser import Browser, browser
from tests.conformance.dashboard.markup import Markup
from tests.pages import addresses
from tests.plans.page_history import make_history

ROWS = 10_000
LARGEST = 400_000
"""Bytes of a page."""
FOLLOWED = 3
NEXT = re.compile(r'rel="next" href="/ops([^"]+)"|href="/ops([^"]+)" rel="next"')


def test_a_long_list_is_shown_page_by_page(app: Penstock) -> None:
    history = make_history(app, ROWS)
    ann = browser(app)
    ids = {"jobs": [history.job], "runs": [history.large_run]}
    long = [
        *addresses(ids, {"pipeline": ["small"], "schedule": []}),
        "/jobs?status=failed",
        "/jobs?task=done",
    ]
    paged = 0
    for path in [*long, "/runs?pipeline=small"]:
        paged += _walk(ann, path)
    assert paged >= 2, "the lists of jobs and runs have more than one page"


def _walk(ann: Browser, path: str) -> bool:
    """True if there were several pages."""
    seen: set[str] = set()
    pages = 0
    following: str | None = path
    while following and pages < FOLLOWED:
        page = ann.get(following)
        assert page.status == 200, (following, page.text[:500])
        assert len(page.body) < LARGEST, (following, len(page.body))
        rows = _rows(page.text)
        assert not rows & seen, (following, "rows that the page before has shown")
        seen |= rows
        found = NEXT.search(page.text)
        following = (found[1] or found[2]).replace("&amp;", "&") if found else None
        pages += 1
    return pages > 1


def _rows(html: str) -> set[str]:
    """The ids of the rows of the main table: each is the first link in its row."""
    table = html.partition("<tbody")[2].rpartition("</tbody>")[0]
    rows = [re.search(r'href="/ops(/(?:jobs|runs)/[0-9a-f-]{36})"', row) for row in table.split("<tr")[1:]]
    return {found[1] for found in rows if found}


def test_a_walk_to_the_end_meets_every_row_once(app: Penstock) -> None:
    @app.task(name="receipt")
    def receipt(order: int) -> int:
        return order

    jobs = receipt.options(delay=3600).enqueue_many([(number,) for number in range(230)])
    ann = browser(app)
    met: list[str] = []
    path: str | None = "/jobs?task=receipt"
    while path:
        page = ann.get(path)
        met += re.findall(r'<tr[^>]*>.*?href="/ops/jobs/([0-9a-f-]{36})"', page.text, re.DOTALL)
        found = NEXT.search(page.text)
        path = (found[1] or found[2]).replace("&amp;", "&") if found else None
        assert Markup(page.text).broken == []
    assert met == sorted((job.id for job in jobs), reverse=True)
