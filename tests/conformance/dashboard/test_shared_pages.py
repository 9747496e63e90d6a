"""dashboard/conditional: Viewers share pages: which are built, for whom, and what each sees; and a dashboard ends
with its app.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from penstock import Penstock
from penstock.dashboard import Dashboard, Request, Viewer, conditional, troubles
from penstock.dashboard.pages import jobs as pages
from penstock.operate.pages.job import job_detail
from penstock.operate.pages.job_search import search
from tests.conformance.dashboard.browser import Answer, Browser, browser


def test_viewers_with_the_same_rights_share_a_page(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """While jobs keep coming: one build for all who ask again, never for those with other rights, names apart."""

    @app.task(name="receipt")
    def receipt(order: int, secret: str) -> int:
        return order

    def guard(request: Request) -> Viewer:
        name, _, rights = request.headers["x-user"].partition("/")
        return Viewer(name, rights.split("+"))

    monkeypatch.setattr(conditional, "LOOK_EVERY", 3600.0)
    job = receipt.enqueue(1, "hidden-word")
    board = Dashboard(app, guard)
    built: list[object] = []

    def counted(*given: Any) -> object:
        built.append(given)
        return job_detail(*given)

    monkeypatch.setattr(pages, "job_detail", counted)

    def ask(user: str, path: str = f"/jobs/{job.id}", **headers: str) -> Answer:
        return Browser(board, headers={"x-user": user}).get(path, **headers)

    first = ask("ann/look+payloads")
    assert "hidden-word" in first.text
    others = [ask(f"{name}/look+payloads", if_none_match='"old"') for name in ("bob", "eve", "bob")]
    assert len(built) == 1, "it was built for another viewer"
    assert [answer.status for answer in others] == [200] * 3
    assert "You act as bob" in others[0].text
    assert "You act as eve" in others[1].text
    assert "hidden-word" in others[1].text
    assert ask("bob/look+payloads", if_none_match=others[0].headers["etag"]).status == 304
    assert ask("bob/look+payloads", if_none_match=others[1].headers["etag"]).status == 200, "that is eve's"
    poor = ask("pat/look", if_none_match=first.headers["etag"])
    assert (poor.status, "hidden-word" in poor.text) == (200, False)
    assert len(built) == 2
    twin = ask("pat/look", f"/jobs/{job.id}.json", if_none_match='"old"')
    assert "hidden-word" not in twin.text
    job.cancel()
    assert json_status(ask("ann/look+payloads", path=f"/jobs/{job.id}.json")) == "cancelled", (
        "a first look is built"
    )


def test_an_act_is_seen_at_once(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(name="receipt")
    def receipt() -> None: ...

    monkeypatch.setattr(conditional, "LOOK_EVERY", 3600.0)
    job = receipt.enqueue()
    ann = browser(app)
    page = f"/jobs/{job.id}.json"
    before = ann.get(page)
    assert ann.act("cancel-jobs", id=job.id).status == 200
    after = ann.get(page, if_none_match=before.headers["etag"])
    assert (json_status(before), json_status(after)) == ("available", "cancelled")


def json_status(answer: Answer) -> object:
    return answer.json["job"]["status"]


def test_one_of_many_who_ask_at_once_builds(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    app.prepare()
    monkeypatch.setattr(conditional, "LOOK_EVERY", 3600.0)
    built: list[object] = []

    def counted(*given: Any) -> object:
        built.append(given)
        return search(*given)

    monkeypatch.setattr(pages, "search", counted)
    board = Dashboard(app, lambda _: Viewer("ann", "all"))
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(Browser(board).get, "/jobs", if_none_match='"old"') for _ in range(24)]
        assert {one.result().status for one in asked} == {200}
    assert len(built) == 1


def test_the_doctor_of_a_dashboard_ends_with_its_app(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on, made = threading.Event(), threading.Event(), list[str]()

    def slow(_patient: object) -> list[object]:
        began.set()
        go_on.wait(30)
        made.append("slow")
        return []

    def late(_patient: object) -> list[object]:
        made.append("late")
        return []

    monkeypatch.setattr(troubles, "QUICK", (slow, late))
    browser(app).get("/")
    assert began.wait(30)
    closing = threading.Thread(target=app.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive(), "a check is under way"
    go_on.set()
    closing.join(30)
    assert made == ["slow"]
    assert "penstock-doctor" not in [thread.name for thread in threading.enumerate()]
