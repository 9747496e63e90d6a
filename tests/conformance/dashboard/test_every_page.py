"""dashboard/pages: every page and its JSON twin: whole, escaped, its links not dead, with nothing, with one and with
hostile rows.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from penstock import Penstock
from penstock.dashboard.pages import NAVIGATION, ROUTES
from tests.conformance.dashboard.browser import Browser, browser
from tests.conformance.dashboard.hostile_app import BRACES, NAME, SECRET, fill
from tests.conformance.dashboard.markup import Markup
from tests.pages import addresses

MOST_PAGES = 150


def checked(visitor: Browser, path: str) -> Markup:
    """A page that is there and whole, and its twin, which is JSON."""
    page = visitor.get(path)
    assert page.status == 200, (path, page.text[:500])
    found = Markup(page.text)
    assert not found.broken, (path, found.broken)
    assert not found.dangers, (path, found.dangers)
    assert len(found.ids) == len(set(found.ids)), (path, sorted(found.ids))
    assert page.text.count("<h1") == 1, path
    twin = visitor.get(_twin(path))
    assert twin.status == 200, (path, twin.text[:500])
    assert isinstance(twin.json, dict), path
    return found


def _twin(path: str) -> str:
    where = urlsplit(path)
    name = "/overview" if where.path == "/" else where.path.rstrip("/")
    return f"{name}.json?{where.query}"


def test_every_page_of_an_empty_database(app: Penstock) -> None:
    ann = browser(app)
    for path in addresses({"jobs": [], "runs": []}, {"pipeline": [], "schedule": []}):
        checked(ann, path)
    for _, _, path in NAVIGATION:
        assert ann.get(path).status == 200, path
    for route in ROUTES:
        if "{" in route.path:
            missing = re.sub(r"\{\w+\}", "0" * 8, route.path)
            assert ann.get(missing).status == 404, missing
            assert ann.get(f"{missing}.json").status == 404, missing


def test_no_page_believes_a_hostile_row_and_no_link_is_dead(app: Penstock) -> None:
    ids = fill(app)
    ann = browser(app)
    todo = _everything(ids)
    seen: set[str] = set()
    said = ""
    while todo and len(seen) < MOST_PAGES:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        found = checked(ann, path)
        said += found.words
        todo += [to for link in found.links if (to := _inside(link)) and to not in seen]
        for form in found.forms:
            assert form.method in ("get", "post", "dialog"), (path, form)
            assert form.method != "post" or all(_inside(to, "/act/") for to in form.targets), (path, form)
    assert BRACES in said
    assert SECRET in said
    assert "\u202e" not in said, "right-to-left marks turn the text around them"
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", said)


def _everything(ids: dict[str, str]) -> list[str]:
    return addresses(
        {"jobs": [ids["failed"], ids["done"]], "runs": [ids["run"], ids["halted"]]},
        {"pipeline": [f"pipe {NAME}"], "schedule": [f"schedule {NAME}"]},
    )


def _inside(link: str, under: str = "/") -> str | None:
    """The path of a page here; None for a file, an anchor or another site."""
    to = urlsplit(link)
    if to.scheme or to.netloc or not to.path.startswith(f"/ops{under}") or to.path.startswith("/ops/static/"):
        return None
    return to.path.removeprefix("/ops") + (f"?{to.query}" if to.query else "")


@pytest.mark.one_database
def test_the_pages_of_a_viewer_who_may_only_look_hide_payloads_and_offer_no_acts(app: Penstock) -> None:
    ids = fill(app)
    looker = browser(app, ["look"])
    for path in _everything(ids):
        page = looker.get(path)
        if page.status == 403:
            continue
        found = Markup(page.text)
        assert [form for form in found.forms if form.method == "post"] == [], path
        assert SECRET not in page.text, path
        assert SECRET not in looker.get(_twin(path)).text, path
