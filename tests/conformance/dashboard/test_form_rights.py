"""dashboard/acts: Rights that depend on the form: schedules that call something, steps of runs; and what forms offer
and prefill.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

import penstock
from penstock import Penstock, wait_for
from penstock.testing import drain
from tests.conformance.dashboard.browser import browser

ALL_BUT_ENQUEUE = ["look", "payloads", "jobs", "runs", "schedules", "operate"]


def test_a_schedule_that_calls_something_needs_the_right_to_enqueue(app: Penstock) -> None:
    @app.task(name="report")
    def report(region: str = "eu") -> str:
        return region

    new = {"target": "report", "name": "nightly", "every": "1h", "args": '["us"]'}
    poor, ann = browser(app, ALL_BUT_ENQUEUE), browser(app)
    refused = poor.act("create-schedule", **new)
    assert (refused.status, "enqueue" in refused.json["message"]) == (403, True)
    assert poor.get("/schedules/new").status == 403
    assert "New schedule" not in poor.get("/schedules").text
    assert ann.act("create-schedule", **new).status == 200
    for args in ('["asia"]', ["asia"], {"region": "asia"}):
        changed = poor.send(
            "POST",
            "/act/edit-schedule.json",
            _json({"name": "nightly", "args": args}),
            {"content-type": "application/json", "sec-fetch-site": "same-origin"},
        )
        assert changed.status == 403, args
    assert app.schedule("nightly").args == {"region": "us"}
    assert poor.act("edit-schedule", name="nightly", every="2h", args=" ").status == 200
    assert 'name="args"' not in poor.get("/schedules/new?name=nightly").text
    assert poor.act("trigger-schedule", name="nightly").status == 200
    assert browser(app, ["look", "enqueue"]).act("create-schedule", **new).status == 403


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def test_a_new_schedule_does_not_redefine_one_that_is_there(app: Penstock) -> None:
    @app.task(name="report")
    def report(region: str = "eu") -> str:
        return region

    ann = browser(app)
    form = {"target": "report", "name": "nightly", "every": "1h", "args": "[]"}
    assert ann.act("create-schedule", **form).status == 200
    assert ann.act("create-schedule", **form).status == 200, "the same form again"
    other = ann.act("create-schedule", **form | {"every": "5h"})
    assert (other.status, "already" in other.json["message"]) == (400, True)
    made = app.schedule("nightly")
    assert made.every is not None
    assert made.every.total_seconds() == 3600
    assert [act.act for act in app.audit(made.id)] == ["create"]


def test_the_form_of_a_schedule_pauses_it_and_clears_its_jitter(app: Penstock) -> None:
    @app.task(name="report")
    def report() -> None: ...

    ann = browser(app)
    assert 'name="paused"' in ann.get("/schedules/new").text
    new = {"target": "report", "name": "nightly", "every": "1h", "jitter": "30s", "paused": "1"}
    assert ann.act("create-schedule", **new).status == 200
    made = app.schedule("nightly")
    assert (made.paused, made.jitter) == (True, 30.0)
    assert 'name="paused"' not in ann.get("/schedules/new?name=nightly").text
    assert ann.act("edit-schedule", name="nightly", every="1h", jitter="").status == 200
    assert app.schedule("nightly").jitter == 0.0
    assert ann.act("edit-schedule", name="nightly", every="2h").status == 200


def test_a_step_is_cancelled_only_with_the_right_to_runs(app: Penstock) -> None:
    @app.task(name="echo")
    def echo(value: Any = None) -> Any:
        return value

    @app.pipeline(name="one")
    def one() -> Any:
        return echo(1)

    run, alone = one.trigger(), echo.enqueue()
    step = run.steps()[0].id
    poor = browser(app, ["look", "jobs"])
    refused = poor.act("cancel-jobs", id=[alone.id, step])
    assert (refused.status, "runs" in refused.json["message"]) == (403, True)
    assert "Cancel the job" not in poor.get(f"/jobs/{step}").text
    assert "Cancel the job" in poor.get(f"/jobs/{alone.id}").text
    assert poor.act("change-matching-jobs", action="cancel", task="echo").json["count"] == 1
    assert (alone.status, run.steps()[0].status) == ("cancelled", "available")
    assert browser(app, ["look", "jobs", "runs"]).act("cancel-jobs", id=step).status == 200


def test_a_run_offers_what_can_be_done_and_what_the_viewer_may(app: Penstock) -> None:
    @app.task(name="fails", retries=0)
    def fails(value: int) -> None:
        raise ValueError(value)

    @app.pipeline(name="halting")
    def halting(value: int) -> Any:
        return fails(value)

    halted, cancelled = halting.trigger(1), halting.trigger(2)
    cancelled.cancel()
    drain(app)
    ann = browser(app)
    assert ann.get(f"/runs/{cancelled.id}.json").json["can"]["revive"] is False
    assert ann.get(f"/runs/{halted.id}.json").json["can"]["revive"] is True
    assert ann.act("revive-run", id=halted.id).status == 200
    assert ann.get(f"/runs/{halted.id}.json").json["can"]["revive"] is False, "it was revived"
    page = browser(app, ["look", "enqueue"]).get(f"/runs/{halted.id}").text
    assert "Run with these" in page
    assert "act/follow-run" in page
    assert "act/rerun-run" not in page
    page = browser(app, ["look", "runs"]).get(f"/runs/{halted.id}").text
    assert "Run with these" not in page
    assert "act/rerun-run" in page


SECRET = "s3cret-word"


@pytest.mark.one_database
def test_what_is_redacted_is_neither_prefilled_nor_told_elsewhere(app: Penstock) -> None:
    @app.task(name="echo")
    def echo(value: Any) -> Any:
        penstock.current().progress(0.5, f"half of {SECRET}")
        return value

    @app.pipeline(name="asks")
    def asks(word: str) -> Any:
        return echo(wait_for("sure", timeout=3600, default={"word": SECRET}))

    job, run, over = echo.enqueue(SECRET), asks.trigger(SECRET), asks.trigger(SECRET)
    over.signal("sure", SECRET)
    drain(app)
    told: list[tuple[str, str, object]] = []

    def redact(task: str, kind: str, value: object) -> object:
        told.append((task, kind, value))
        return "***"

    everything = browser(app)
    assert SECRET in everything.get(f"/jobs/{job.id}").text
    assert "Other arguments</label><textarea" in everything.get(f"/runs/{over.id}").text
    assert everything.get(f"/runs/{over.id}.json").json["repeat_with"] == f'{{"word":"{SECRET}"}}'
    for viewer in (browser(app, redact=redact), browser(app, ["look", "runs", "enqueue", "jobs"])):
        for path in (f"/jobs/{job.id}", f"/runs/{run.id}", f"/runs/{over.id}"):
            assert SECRET not in viewer.get(path).text, path
            assert SECRET not in viewer.get(f"{path}.json").text, path
        assert viewer.get(f"/runs/{over.id}.json").json["repeat_with"] is None
    assert ("echo", "progress", f"half of {SECRET}") in told
    assert ("asks", "context", {"word": SECRET}) in told


def test_a_value_wins_over_a_choice(app: Penstock) -> None:
    @app.task(name="echo")
    def echo(value: Any) -> Any:
        return value

    @app.pipeline(name="asks")
    def asks() -> Any:
        return echo(wait_for("sure"))

    ann = browser(app)
    for form, wanted in (({"choice": "reject"}, False), ({"choice": "approve", "value": "7"}, 7)):
        run = asks.trigger()
        assert ann.act("signal-run", id=run.id, signal="sure", **form).status == 200
        drain(app)
        assert run.result() == wanted
