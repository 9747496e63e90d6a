"""dashboard/request_ids: the same form sent twice does its work once: every act, one after the other and at the same
moment.

Actors: two requests with one form, in two threads or processes of the dashboard. What decides is the primary key of
the job or run: the form's `once` is its id, so the second insert fails, and the request finds what the first has made.
A process that dies before its commit has made nothing, and the form can be sent again; one that dies after it has, and
the form finds it.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from penstock import Penstock, wait_for
from penstock.dashboard.dashboard import EVERY_ACT
from penstock.dashboard.request_ids import MARK
from penstock.operate.jobs import made_under
from penstock.pipelines.run import Run
from penstock.testing import drain
from penstock.values.ids import new_id
from tests.conformance.dashboard.browser import browser

MAKING = {
    "new-job",
    "start-run",
    "rerun-run",
    "repeat-run",
    "follow-run",
    "fork-run",
    "revive-run",
    "retry-step",
    "trigger-schedule",
}
"""Acts that make a job or a run: the second form leads to the one that is there."""


@dataclass
class Scene:
    app: Penstock
    halted: Run
    waiting: Run
    pending: str
    failed: str
    process: str = "00000000-0000-7000-8000-000000000000"

    def form(self, act: str) -> dict[str, object]:
        run: dict[str, object] = {"id": self.halted.id}
        job: dict[str, object] = {"id": self.failed}
        forms: dict[str, dict[str, object]] = {
            "retry-jobs": job,
            "discard-jobs": job,
            "cancel-jobs": {"id": self.pending},
            "change-matching-jobs": {"action": "retry", "status": "failed", "queue": "apart"},
            "new-job": {"task": "echo", "arg-value": "7"},
            "pause-queue": {"queue": "default"},
            "resume-queue": {"queue": "default"},
            "pause-run": {"id": self.waiting.id},
            "resume-run": {"id": self.waiting.id},
            "cancel-run": {"id": self.waiting.id},
            "migrate-run": {
                "id": self.waiting.id
            },  # it has the definition already: neither form does anything
            "signal-run": {"id": self.waiting.id, "signal": "sure", "value": "yes"},
            "follow-run": {"id": self.waiting.id, "pipeline": "asks"},
            "revive-run": run,
            "retry-step": run | {"step": "fails"},
            "fork-run": run | {"step": "fails"},
            "rerun-run": run,
            "repeat-run": run | {"args": '["other"]'},
            "start-run": {"pipeline": "asks"},
            "backfill-schedule": {"name": "hourly", "start": "2026-01-01T00:00", "end": "2026-01-01T05:00"},
            "create-schedule": {"target": "echo", "name": "new", "every": "1h", "args": "[1]"},
            "edit-schedule": {"name": "hourly", "overlap": "skip"},
        }
        return forms.get(act, {"name": "hourly"} if act.endswith("-schedule") else {})


@pytest.fixture
def scene(app: Penstock) -> Scene:
    @app.task(name="echo")
    def echo(value: Any) -> Any:
        return value

    @app.task(name="fails", retries=0)
    def fails(value: Any) -> None:
        raise ValueError(value)

    @app.pipeline(name="halting")
    def halting(value: str = "it") -> Any:
        return fails(value)

    @app.pipeline(name="asks")
    def asks() -> Any:
        return echo(wait_for("sure"))

    app.schedules.create(echo, name="hourly", every=3600, args=(1,))
    halted, waiting, failed = halting.trigger(), asks.trigger(), fails.options(queue="apart").enqueue(1)
    drain(app)
    return Scene(app, halted, waiting, echo.options(delay=3600).enqueue(2).id, failed.id)


def counts(app: Penstock) -> tuple[int, int]:
    """How many jobs and runs there are."""
    return app.database.read(
        lambda tx: (len(tx.rows("SELECT id FROM {jobs}")), len(tx.rows("SELECT id FROM {runs}")))
    )


IDLE = {"hint-reconciler", "ask-stacks", "examine"}
"""They make nothing and change nothing: to be asked twice is to be asked."""


@pytest.mark.parametrize("act", [act.name for act in EVERY_ACT if act.name not in IDLE])
def test_a_form_that_is_sent_twice_does_its_work_once(scene: Scene, act: str) -> None:
    ann = browser(scene.app)
    if act.startswith("resume-"):
        assert ann.act(act.replace("resume", "pause"), **scene.form(act)).status == 200
    form = scene.form(act) | {"once": new_id()}
    first = ann.act(act, **form)
    assert first.status == (409 if act == "migrate-run" else 200), first.text
    made, acts = counts(scene.app), scene.app.audit(limit=100)
    second = ann.act(act, **form)
    assert counts(scene.app) == made, "nothing is made twice"
    assert [one.id for one in scene.app.audit(limit=100)] == [one.id for one in acts], "nor done twice"
    found = scene.app.database.read(made_under, str(form["once"]))
    assert (found is not None) == (act in MAKING), "the list of acts that make something is whole"
    if act in MAKING:
        assert second.status == 200
        assert second.json["again"] is True
        assert form["once"] in (first.json.get("id"), first.json.get("run"), first.json.get("started"))
        leads = ann.post(f"/act/{act}", form).headers["location"]
        assert str(form["once"]) in leads
        assert "sent before" in ann.get(leads.removeprefix("/ops")).text


@pytest.mark.parametrize("act", sorted(MAKING))
def test_two_forms_at_the_same_moment_make_one(scene: Scene, act: str) -> None:
    form = scene.form(act) | {"once": new_id()}
    ann, together = browser(scene.app), threading.Barrier(3)
    before = len(scene.app.audit(limit=100))

    def send() -> Any:
        together.wait(30)
        return ann.act(act, **form)

    with ThreadPoolExecutor(3) as threads:
        answers = [one.result() for one in [threads.submit(send) for _ in range(3)]]
    assert [answer.status for answer in answers] == [200] * 3, [answer.text for answer in answers]
    assert scene.app.database.read(made_under, str(form["once"])) is not None
    assert len(scene.app.audit(limit=100)) == before + 1, "one of the three has done it"


@pytest.mark.one_database
def test_each_page_that_is_sent_has_ids_of_its_own(scene: Scene) -> None:
    ann = browser(scene.app)
    page = f"/runs/{scene.halted.id}"
    first, second = ann.get(page), ann.get(page, if_none_match='"old"')
    assert MARK not in first.text
    ids = _ids(first.text)
    assert len(set(ids)) == len(ids) > 3
    assert not set(ids) & set(_ids(second.text))
    tag = first.headers["etag"]
    assert ann.get(page, if_none_match=tag).status == 304, "the script asks"
    assert ann.get(page, if_none_match=tag, sec_fetch_mode="navigate").status == 200, "a person reloads"


def _ids(text: str) -> list[str]:
    return [part[:36] for part in text.split('name="once" value="')[1:]]


@pytest.mark.one_database
def test_an_id_that_no_form_has_is_refused(scene: Scene) -> None:
    ann = browser(scene.app)
    for wrong in (
        "x",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "0" * 32,
        "01980000-0000-4000-8000-000000000000",
    ):
        assert ann.act("new-job", **scene.form("new-job"), once=wrong).status == 400, wrong


@pytest.mark.one_database
def test_a_form_that_failed_can_be_mended_and_sent_again(scene: Scene) -> None:
    ann, once = browser(scene.app), new_id()
    refused = ann.post(
        "/act/start-run", {"pipeline": "asks", "args": "[", "once": once, "back": "/pipelines"}
    )
    assert refused.status == 400
    assert 'href="/ops/pipelines"' in refused.text
    assert "Schedules" in refused.text, "the navigation is there"
    assert ann.act("start-run", pipeline="asks", once=once).json["run"] == once
