"""dashboard/asgi, dashboard/wsgi: both doors lead to the same pages: HTML and its JSON twin, files, conditional
requests, errors.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from penstock import Penstock
from penstock.dashboard import Dashboard, Request, Viewer, conditional
from penstock.dashboard.pages import jobs as pages
from penstock.errors import ConfigurationError, ReadTimeout
from penstock.operate.pages.job_search import search
from tests.conformance.dashboard.browser import Browser, browser

ANNOUNCEMENT_FILES = ["wsgi", "asgi"]


@pytest.mark.parametrize("door", ANNOUNCEMENT_FILES)
def test_a_page_its_twin_and_its_files(app: Penstock, door: str) -> None:
    @app.task(name="shop.<b>receipt</b>")
    def receipt(order: int) -> int:
        return order

    job = receipt.enqueue(1)
    ann = browser(app, door=door)
    page = ann.get("/jobs")
    assert page.status == 200
    assert job.id in page.text
    assert "<b>receipt" not in page.text
    assert "'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert [row["id"] for row in ann.get("/jobs.json").json["jobs"]] == [job.id]
    assert ann.get("/").text.count('href="/ops/') > 2
    for file in re.findall(r'(?:href|src)="/ops(/static/[^"#]+)', page.text):
        found = ann.get(file)
        assert found.status == 200
        assert "immutable" in found.headers["cache-control"]
    assert ann.get("/static/penstock.000000000000.css").status == 404


@pytest.mark.parametrize("door", ANNOUNCEMENT_FILES)
def test_an_unchanged_page_is_not_sent_again(
    app: Penstock, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditional, "LOOK_EVERY", 0.0)

    @app.task(name="receipt")
    def receipt(order: int) -> int:
        return order

    receipt.enqueue(1)
    ann = browser(app, door=door)
    tag = ann.get("/jobs").headers["etag"]
    unchanged = ann.get("/jobs", if_none_match=tag)
    assert (unchanged.status, unchanged.body) == (304, b"")
    receipt.enqueue(2)
    assert ann.get("/jobs", if_none_match=tag).status == 200


@pytest.mark.parametrize("door", ANNOUNCEMENT_FILES)
def test_errors_are_pages(app: Penstock, door: str) -> None:
    ann = browser(app, door=door)
    assert ann.get("/nowhere").status == 404
    assert ann.get("/nowhere.json").json["status"] == 404
    assert ann.send("HEAD", "/jobs", b"", {}).body == b""
    assert ann.send("PUT", "/jobs", b"", {}).status == 405
    assert ann.get("/act/retry-jobs").status == 405
    assert ann.post("/act/nothing").status == 404


@pytest.mark.parametrize("door", ANNOUNCEMENT_FILES)
def test_it_is_closed_unless_it_is_opened(app: Penstock, door: str) -> None:
    shut = Browser(Dashboard(app), door).get("/jobs.json")
    assert shut.status == 403
    assert "guard" in shut.json["message"]
    assert Browser(Dashboard(app, lambda _: None), door).get("/jobs").status == 403

    async def async_guard(request: Request) -> Viewer | None:
        return Viewer("bob") if request.query.get("token") == ["x"] else None

    bob = Browser(Dashboard(app, async_guard), door)
    assert bob.get("/jobs?token=x").status == 200
    assert bob.get("/jobs").status == 403


@pytest.mark.parametrize("door", ANNOUNCEMENT_FILES)
def test_an_act_needs_its_right_and_its_own_site(app: Penstock, door: str) -> None:
    @app.task(name="receipt")
    def receipt(order: int) -> int:
        return order

    job = receipt.enqueue(1)
    looker = browser(app, ["look", "payloads"], door)
    assert looker.post("/act/cancel-jobs", {"id": job.id}).status == 403
    assert browser(app, door=door, read_only=True).post("/act/cancel-jobs", {"id": job.id}).status == 403
    ann = browser(app, door=door)
    assert ann.post("/act/cancel-jobs", {"id": job.id}, sec_fetch_site="cross-site").status == 403
    body = f"id={job.id}".encode()
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert ann.send("POST", "/act/cancel-jobs", body, form).status == 403
    assert ann.send("POST", "/act/cancel-jobs", body, form | {"origin": "http://evil.example"}).status == 403
    assert job.status == "available"
    answer = ann.send(
        "POST", "/act/cancel-jobs", body + b"&back=/jobs", form | {"origin": "http://dash.example"}
    )
    assert (answer.status, answer.headers["location"]) == (303, "/ops/jobs")
    assert job.status == "cancelled"
    assert "will end cancelled" in ann.get("/jobs").text
    assert "will end cancelled" not in ann.get("/jobs").text
    assert [(act.act, act.by) for act in app.audit(job.id)] == [("cancel", "ann")]
    assert ann.act("retry-jobs", id=job.id).json["done"] == [job.id]


@pytest.mark.one_database
def test_a_password_opens_it_and_cannot_be_guessed(make_app: Callable[..., Penstock]) -> None:
    app = make_app(dashboard_password="correct horse")
    good = "Basic YWRtaW46Y29ycmVjdCBob3JzZQ=="
    visitor = Browser(Dashboard(app))
    first = visitor.get("/jobs")
    assert first.status == 401
    assert first.headers["www-authenticate"].startswith("Basic")
    assert visitor.get("/jobs", authorization=good).status == 200
    tried = [visitor.get("/jobs", authorization="Basic YWRtaW46eA==").status for _ in range(12)]
    assert tried[0] == 401
    assert tried[-1] == 429
    assert visitor.get("/jobs", authorization=good).status == 429
    assert Browser(Dashboard(app), client="192.0.2.8").get("/jobs", authorization=good).status == 200


def test_a_right_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="payloads"):
        Viewer("ann", ["payload"])


def test_a_page_is_not_built_while_nothing_is_committed(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(name="receipt")
    def receipt(order: int) -> int:
        return order

    receipt.enqueue(1)
    monkeypatch.setattr(conditional, "LOOK_EVERY", 0.0)
    ann = browser(app)
    tag = ann.get("/jobs").headers["etag"]
    built: list[object] = []

    def counted(*given: Any) -> object:
        built.append(given)
        return search(*given)

    monkeypatch.setattr(pages, "search", counted)
    # Other databases of the server commit too, and MariaDB's log moves by itself: then the page is built, and found to
    # be the same. Between two such moments it is not built.
    for _ in range(100):
        built.clear()
        assert ann.get("/jobs", if_none_match=tag).status == 304
        if not built:
            break
    assert not built or app.settings.backend == "mysql" or app.settings.profile != "standard"
    receipt.enqueue(2)
    assert ann.get("/jobs", if_none_match=tag).status == 200
    assert built


def test_a_statement_of_a_page_is_ended_in_time(make_app: Callable[..., Penstock]) -> None:
    app = make_app(dashboard_timeout=0.2)
    app.prepare()
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"
    endless = f"{numbers} SELECT COUNT(*) FROM n a, n b, n c, n d WHERE a.i + b.i + c.i + d.i > 7"
    with pytest.raises(ReadTimeout, match="dashboard_timeout"):
        app.database.read_briefly(0.2, lambda tx: tx.rows(endless))
    assert app.database.read(lambda tx: tx.row("SELECT 1")) == (1,)
