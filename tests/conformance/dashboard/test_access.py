"""dashboard/access: every act is refused without its right, from another site, by GET, or with a forged session."""

from __future__ import annotations

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from penstock import Penstock
from penstock.dashboard import Dashboard, Request, Right, Viewer
from penstock.dashboard.acts import DashboardAct
from penstock.dashboard.dashboard import EVERY_ACT
from penstock.dashboard.logins import COOKIE, MOST_FAILURES, LinkLogin
from penstock.testing import drain
from tests.conformance.dashboard.browser import Browser, browser

FORM = {"content-type": "application/x-www-form-urlencoded"}
HERE = {"sec-fetch-site": "same-origin"}
ELSEWHERE = [
    {},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
    {"sec-fetch-site": "SAME-ORIGIN"},
    {"sec-fetch-site": "cross-site", "origin": "http://dash.example"},
    {"origin": "null"},
    {"origin": "http://evil.example"},
    {"origin": "http://dash.example.evil.example"},
    {"origin": "http://dash.example:8000"},
    {"origin": "http://dash.example@evil.example"},
    {"origin": "dash.example"},
    {"referer": "http://dash.example/ops/jobs"},
]
"""What browsers say of a request that comes from somewhere else, and what a liar may say."""


@pytest.mark.one_database
@pytest.mark.parametrize("act", EVERY_ACT, ids=lambda act: act.name)
def test_an_act_is_refused_to_all_others(app: Penstock, act: DashboardAct) -> None:
    path = f"/act/{act.name}"
    without = browser(app, frozenset(Right) - {act.right})
    only_looks = browser(app, ["look", "payloads"])
    read_only = browser(app, read_only=True)
    for visitor in (without, only_looks, read_only):
        for address in (path, f"{path}.json"):
            answer = visitor.post(address)
            assert answer.status == 403, (answer.status, answer.text)
        assert act.right.value in visitor.post(f"{path}.json").json["message"]
    ann = browser(app)
    for headers in ELSEWHERE:
        refused = ann.send("POST", path, b"", FORM | headers)
        assert refused.status == 403, headers
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        assert ann.send(method, path, b"", HERE).status == 405, method
    assert Browser(Dashboard(app, lambda _: None)).post(path).status == 403
    assert Browser(Dashboard(app)).post(path).status == 403
    assert ann.post(path).status < 500
    assert app.audit() == []


def test_a_form_that_is_sent_again_does_nothing_twice(app: Penstock) -> None:
    @app.task(name="broken", retries=0)
    def broken() -> None:
        raise ValueError("no")

    job = broken.enqueue()
    drain(app)
    ann = browser(app)
    assert ann.act("retry-jobs", id=job.id).json["done"] == [job.id]
    again = ann.act("retry-jobs", id=job.id)
    assert (again.status, again.json["done"], again.json["ok"]) == (409, [], False)
    assert [act.act for act in app.audit(job.id)] == ["retry"]
    assert ann.act("cancel-jobs", id=job.id).status == 200
    assert ann.act("cancel-jobs", id=job.id).status == 409
    assert job.status == "cancelled"


@pytest.mark.one_database
def test_a_viewer_cannot_be_forged(app: Penstock) -> None:
    def guard(request: Request) -> Viewer | None:
        return Viewer(request.headers.get("x-user", ""), "all") if "x-user" in request.headers else None

    @app.task(name="receipt")
    def receipt() -> None: ...

    job = receipt.enqueue()
    mallory = Browser(Dashboard(app, guard), headers={"x-user": "mallory\r\nann"})
    named = {"id": job.id, "by": "ann", "viewer": "ann", "actor": "ann", "name": "ann", "rights": "all"}
    mallory.post("/act/cancel-jobs", named)
    assert [act.by for act in app.audit(job.id)] == ["mallory\r\nann"]


@pytest.mark.one_database
def test_a_link_works_once_and_a_session_cannot_be_made_up(app: Penstock) -> None:
    link = LinkLogin("ann")
    board = Dashboard(app, link=link)
    visitor = Browser(board, prefix="")
    assert visitor.get("/jobs").status == 401
    key = link.new_key()
    for forged in ("", "x", key[:-1], f"{key}x", key.swapcase()):
        assert Browser(board, prefix="", client=f"c{len(forged)}").get(f"/login?key={forged}").status == 401
    opened = visitor.get(f"/login?key={key}")
    assert (opened.status, opened.headers["location"]) == (303, "/")
    assert "HttpOnly" in opened.headers["set-cookie"]
    assert "SameSite" in opened.headers["set-cookie"]
    assert visitor.get("/jobs").status == 200
    late = Browser(board, prefix="", client="late")
    assert late.get(f"/login?key={key}").status == 401
    session = visitor.cookies[COOKIE]
    for forged in ("", session[:-1], f"{session}x", session.swapcase(), "\xff"):
        assert Browser(board, prefix="", headers={"cookie": f"{COOKIE}={forged}"}).get("/jobs").status == 401
    tried = [late.get("/login?key=guess").status for _ in range(MOST_FAILURES + 2)]
    assert tried[-1] == 429
    fresh = link.new_key()
    assert late.get(f"/login?key={fresh}").status == 429, "even with the right key"
    assert visitor.get("/jobs").status == 200
