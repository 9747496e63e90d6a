"""dashboard/pages/schedules: Pages of schedules: next ticks, history, and every act."""

from datetime import UTC, datetime
from urllib.parse import quote, quote_plus

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from penstock import Penstock
from penstock.testing import drain, travel
from tests.conformance.dashboard.browser import browser

NAME = 'tenant:7 & <b>"co"</b>'


def test_a_schedule_from_the_form_to_its_end(app: Penstock) -> None:
    @app.task(name="report")
    def report(region: str = "eu") -> str:
        return region

    ann = browser(app)
    assert "No schedules yet" in ann.get("/schedules").text
    assert '<option value="report">' in ann.get("/schedules/new").text
    made = ann.act(
        "create-schedule",
        target="report",
        name=NAME,
        cron="0 3 * * *",
        tz="Europe/Berlin",
        args='["us"]',
        jitter="",
    )
    assert made.json["name"] == NAME
    at = f"?name={quote(NAME)}"
    data = ann.get(f"/schedule.json{at}").json
    assert data["schedule"]["when"].startswith("at 03:00")
    assert data["schedule"]["status"] == "active"
    assert [tick["wall"][-22:] for tick in data["next"]] == ["03:00:00 Europe/Berlin"] * 8
    assert data["args"]["text"] == '{"region":"us"}'
    page = ann.get(f"/schedule{at}")
    assert page.status == 200
    assert "<b>" not in page.text
    assert ann.get(f"/schedules/new{at}").status == 200

    job = ann.act("trigger-schedule", name=NAME).json["started"]
    (tick,) = ann.get(f"/schedule.json{at}").json["ticks"]
    assert (tick["outcome"], tick["triggered"], tick["job"], tick["status"]) == (
        "fired",
        True,
        job,
        "available",
    )
    assert ann.act("pause-schedule", name=NAME, why="audit").status == 200
    assert ann.act("pause-schedule", name=NAME).status == 409
    paused = ann.get(f"/schedule.json{at}").json
    assert (paused["schedule"]["pause_why"], paused["schedule"]["paused_by"]) == ("audit", "ann")
    assert paused["next"] == []
    assert "audit" in ann.get("/schedules").text
    assert ann.act("resume-schedule", name=NAME).status == 200
    edited = ann.post("/act/edit-schedule", {"name": NAME, "every": "90s", "overlap": "skip", "args": ""})
    assert edited.status == 303
    data = ann.get(f"/schedule.json{at}").json
    assert (data["schedule"]["every"], data["schedule"]["overlap"]) == (90, "skip")
    assert data["args"]["text"] == '{"region":"us"}', "as it was"
    assert ann.get(edited.headers["location"].removeprefix("/ops")).status == 200
    assert ann.act("delete-schedule", name=NAME).json["deleted"] is True
    assert ann.get(f"/schedule{at}").status == 404
    assert [act.by for act in app.audit(limit=3)] == ["ann"] * 3


def test_a_schedule_gets_another_beginning_and_end(app: Penstock) -> None:
    @app.task(name="report")
    def report() -> None: ...

    ann = browser(app)
    bounds = {"start": "2026-01-01T00:00", "end": "2099-01-01T00:00"}
    assert ann.act("create-schedule", target="report", name="n", every="1h", **bounds).status == 200
    made = app.schedule("n")
    assert (made.start, made.end) == (datetime(2026, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC))
    made.update(start=datetime(2026, 1, 1, 0, 0, 0, 1234, tzinfo=UTC))
    form = ann.get("/schedules/new?name=n").text
    assert 'value="2026-01-01T00:00:00.001"' in form
    assert 'value="2099-01-01T00:00:00.000"' in form
    ann.act("edit-schedule", name="n", start="2026-01-01T00:00:00.001", end="2098-01-01T00:00")
    found = app.schedule("n")
    assert found.start == datetime(2026, 1, 1, 0, 0, 0, 1234, tzinfo=UTC), "it was not changed in the form"
    assert found.end == datetime(2098, 1, 1, tzinfo=UTC)
    ann.act("edit-schedule", name="n", every="2h")
    assert app.schedule("n").end == datetime(2098, 1, 1, tzinfo=UTC), "the form did not have it"
    ann.act("edit-schedule", name="n", start="", end="")
    assert (app.schedule("n").start, app.schedule("n").end) == (None, None)
    assert ann.act("edit-schedule", name="n", end="soon").status == 400


def test_history_is_paged_and_backfilled(app: Penstock) -> None:
    @app.pipeline(name="nightly")
    def nightly() -> None:
        report()

    @app.task(name="report")
    def report() -> None: ...

    app.schedules.create(nightly, every=60, name="n", missed="all", start=datetime(2026, 1, 1, tzinfo=UTC))
    travel(app, 40 * 60)
    drain(app)
    ann = browser(app)
    data = ann.get("/schedule.json?name=n").json
    assert len(data["ticks"]) == 30
    older = ann.get(f"/schedule.json?name=n&before={data['before']}").json
    assert older["ticks"][0]["nominal_at"] < data["ticks"][-1]["nominal_at"]
    assert data["ticks"][0]["status"] == "succeeded"
    (listed,) = ann.get("/schedules.json").json["schedules"]
    assert len(listed["ticks"]) == 12
    told = ann.act(
        "backfill-schedule", name="n", start="2026-01-01T00:00", end="2026-01-01T00:09", overlap="allow"
    )
    assert told.json["ticks"] == 10
    assert ann.act("backfill-schedule", name="n", start="then", end="2026-01-01T00:09").status == 400
    for path in (
        "/schedules",
        "/schedule?name=n",
        f"/schedule?name=n&before={data['before']}",
        "/schedules?name=z",
    ):
        assert ann.get(path).status == 200


def test_acts_on_schedules_need_their_right(app: Penstock) -> None:
    @app.task(name="report")
    def report() -> None: ...

    app.schedules.create(report, "@daily", name="n")
    looker = browser(app, rights=["look", "payloads", "jobs", "runs", "enqueue"])
    names = ["pause", "resume", "trigger", "backfill", "create", "edit", "delete"]
    for name in names:
        assert looker.act(f"{name}-schedule", name="n", target="report", cron="@hourly").status == 403
    assert "/act/" not in looker.get("/schedule?name=n").text
    assert "/schedules/new" not in looker.get("/schedules").text


def test_a_schedule_that_makes_no_sense_is_refused(app: Penstock) -> None:
    @app.task(name="report")
    def report() -> None: ...

    ann = browser(app)
    for given in (
        {"cron": "soon"},
        {"cron": "@daily", "every": "5m"},
        {"every": "-1s"},
        {},
        {"cron": "@daily", "tz": "Mars/Olympus"},
        {"cron": "@daily", "args": "{"},
        {"cron": "@daily", "target": "nothing"},
    ):
        assert ann.act("create-schedule", **{"target": "report", **given}).status == 400, given
    assert ann.get("/schedules.json").json["schedules"] == []


def test_a_declared_schedule_that_no_worker_has_seen_is_named(app: Penstock) -> None:
    @app.task(name="report")
    def report() -> None: ...

    report.schedule("@daily", name="fresh")
    ann = browser(app)
    assert ann.get("/schedules.json").json["not_stored"] == [{"name": "fresh", "target": "report"}]
    assert "fresh" in ann.get("/schedules").text


def test_a_job_and_a_run_lead_to_their_schedule(app: Penstock) -> None:
    @app.task(name="report")
    def report() -> None: ...

    @app.pipeline(name="books")
    def books() -> object:
        return report()

    ann = browser(app)
    for target, kind in ((report, "jobs"), (books, "runs")):
        name = f"{NAME} {kind}"
        app.schedules.create(target, name=name, every=3600)
        with travel(app, 4000):
            drain(app)
        started = {"jobs": "job", "runs": "run"}[kind]
        tick = ann.get(f"/schedule.json?name={quote(name)}").json["ticks"][0]
        page = f"/{kind}/{tick[started]}"
        assert f"/schedule?name={quote_plus(name)}" in ann.get(page).text
    assert ann.get(f"/runs/{books.trigger().id}.json").json["run"]["schedule"] is None
