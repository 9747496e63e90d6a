"""job, operate/diagnosis/explain: Jobs from Python: lists of them, their attributes, their labels, and why they
wait.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from penstock import Concurrency, Penstock, Snooze, current, wait_for
from penstock.errors import ConfigurationError, PenstockError
from penstock.operate import jobs as operate_jobs
from penstock.operate.actions import prune
from penstock.operate.diagnosis.explain import Explanation
from penstock.testing import drain, travel
from penstock.values.ids import new_id
from tests.conformance.operate.helpers import enqueue, register, take
from tests.conformance.rows import count


def test_jobs_are_listed_by_everything_that_they_have(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operate_jobs, "STRIDE", 2)
    monkeypatch.setattr(operate_jobs, "MOST_WALKED", 4)
    rare = enqueue(app, "quick", 0, queue="rare", labels=["tenant:7", "bulk", "bulk"], key="order:1")
    several = app.tasks["quick"].options(labels="bulk").enqueue_many([(1,), (2,), (3,)])
    failed = enqueue(app, "fail", 4, labels=["bulk"])
    enqueue(app, "fail", 5, key="order:2")
    for number in range(9):
        enqueue(app, "quick", number)
    assert app.jobs(queue="rare") == [rare]
    assert app.jobs(label="bulk") == [failed, *several[::-1], rare]
    assert app.jobs(label="bulk", limit=2) == [failed, several[2]]
    assert app.jobs(label="bulk", limit=2, before=several[2]) == [several[1], several[0]]
    assert app.jobs(label="bulk", task=app.tasks["fail"]) == [failed]
    assert app.jobs(label="Bulk") == app.jobs(label="tenant") == app.jobs(limit=0) == []
    assert app.jobs(key="order:1") == app.jobs(key="order:1", task="quick") == [rare]
    assert app.jobs(key="order:1", task="fail") == app.jobs(key="order:1", queue="mail") == []
    assert len(app.jobs()) == 15
    drain(app)
    assert app.jobs(status="failed", label="bulk") == [failed]
    assert asyncio.run(app.jobs_async("succeeded", label="tenant:7")) == [rare]
    assert (rare.labels, rare.key, rare.queue) == (["bulk", "tenant:7"], "order:1", "rare")
    for wrong in ({"status": "done"}, {"limit": -1}, {"label": 7}, {"before": "x"}):
        with pytest.raises(PenstockError):
            app.jobs(**wrong)


def test_labels_are_checked_go_with_the_key_and_go_with_the_job(app: Penstock) -> None:
    @app.task(name="marked", labels=["all"])
    def marked() -> None: ...

    first = marked.options(key="k", labels=["one"]).enqueue()
    assert marked.options(key="k", labels=["two"]).enqueue() == first
    assert (first.labels, app.jobs(label="two"), marked.enqueue().labels) == (["one"], [], ["all"])
    for wrong in (7, [""], ["x" * 201], [f"l{n}" for n in range(51)]):
        with pytest.raises(ConfigurationError):
            marked.options(labels=wrong)  # type: ignore[arg-type]
    drain(app)
    with travel(app, 15 * 86_400):
        assert count(app, "job_labels") == 2
        prune(app.database, 86_400)
    assert count(app, "job_labels") == 0


def test_a_scheduled_task_has_its_labels(app: Penstock) -> None:
    app.tasks["quick"].schedule(every=60, name="each", args=(1,), labels=["tick"])
    drain(app)
    with travel(app, 61):
        drain(app)
    assert app.jobs(label="tick")


def test_labels_are_written_in_the_transaction_of_the_caller(
    sqlite_url: str, app_on: Callable[..., Penstock]
) -> None:
    app = app_on(sqlite_url)

    @app.task(name="note")
    def note() -> None: ...

    app.prepare()
    connection = sqlite3.connect(str(app.database.url.database))
    note.options(labels=["x"], connection=connection).enqueue()
    connection.rollback()
    assert count(app, "job_labels") == 0
    note.options(labels=["x"], connection=connection).enqueue()
    connection.commit()
    connection.close()
    assert len(app.jobs(label="x")) == 1


def test_a_handle_has_the_attributes_of_its_job(app: Penstock) -> None:
    @app.task(name="pay")
    def pay(amount: Decimal, *notes: str, **more: int) -> None: ...

    soon = datetime.now(UTC) + timedelta(hours=1)
    job = pay.options(priority=3, at=soon, key="k", queue="mail").enqueue(Decimal("1.5"), "a", "b", z=1)
    same = app.job(job.id)
    assert (same.task, same.queue, same.priority, same.key, same.labels) == ("pay", "mail", 3, "k", [])
    assert (same.args, same.kwargs, same.run_id) == ([Decimal("1.5"), "a", "b"], {"z": 1}, None)
    assert same.due_at is not None
    assert abs(same.due_at - soon) < timedelta(milliseconds=1)
    assert abs(same.created_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert (same.started_at, same.finished_at) == (None, None)
    with travel(app, 3700):
        drain(app)
    assert same.started_at is None
    assert asyncio.run(same.refresh_async()) is same
    assert same.due_at is None
    assert same.finished_at is not None
    assert same.started_at is not None
    assert same.finished_at >= same.started_at
    with pytest.raises(PenstockError, match="there is no job"):
        _ = app.job(new_id()).task


def test_arguments_are_there_by_position_and_by_name(app: Penstock) -> None:
    @app.task(name="pay")
    def pay(amount: int, currency: str = "EUR", fee: int = 0, *, note: str = "") -> None: ...

    by_position = app.job(pay.enqueue(7, "USD").id)
    assert (by_position.args, by_position.kwargs) == ([7, "USD"], {"amount": 7, "currency": "USD"})
    by_name = app.job(pay.enqueue(note="x", amount=7, fee=1).id)
    assert (by_name.args, by_name.kwargs) == ([7], {"note": "x", "amount": 7, "fee": 1})


def test_arguments_of_a_task_that_this_app_lacks_can_be_read(app: Penstock, make_app: Any) -> None:
    @app.task(name="pay")
    def pay(amount: Decimal, *notes: str) -> None: ...

    other = make_app()
    job = other.job(pay.enqueue(Decimal("1.5"), "a").id)
    assert (job.args, job.kwargs) == (["a"], {"amount": Decimal("1.5")})


def kinds(told: Explanation) -> list[str]:
    return [cause.kind for cause in told.causes]


def test_a_job_is_explained_wherever_it_stands(app: Penstock) -> None:
    @app.task(name="slow", limits=[Concurrency(1)])
    def slow() -> None: ...

    @app.task(name="flaky", retries=3)
    def flaky() -> None:
        raise ValueError("not yet")

    @app.task(name="again")
    def again() -> object:
        return Snooze(50) if current().attempt == 1 else None

    later = enqueue(app, "quick", 1, delay=60)
    told = app.explain(later)
    assert kinds(told) == ["not_due"]
    assert "is not due until" in told.text
    assert "(in 1 h " in app.explain(enqueue(app, "quick", 2, delay=5_430)).text
    assert told.causes[0].detail["due_at"] == later.due_at
    tried, snoozed = flaky.enqueue(), again.enqueue()
    drain(app)
    assert kinds(app.explain(tried)) == ["backing_off"]
    assert "ValueError: not yet" in app.explain(tried.id).text
    assert kinds(app.explain(snoozed)) == ["snoozed"]
    ready = enqueue(app, "quick", 2)
    assert kinds(app.explain(ready)) == ["no_worker"]
    process = register(app)
    assert kinds(asyncio.run(app.explain_async(ready))) == ["ready"]
    app.pause_queue("default", why="audit")
    assert kinds(app.explain(ready)) == ["queue_paused"]
    assert "audit" in app.explain(ready).text
    app.resume_queue("default")
    take(app, process)
    assert kinds(app.explain(ready)) == ["running"]
    assert "runs on host, pid 1" in str(app.explain(ready))
    failed = enqueue(app, "fail", 3)
    drain(app)
    assert kinds(app.explain(failed)) == ["ended"]
    assert "number 3" in app.explain(failed).text
    with pytest.raises(PenstockError, match="no job and no run"):
        app.explain(new_id())


def test_a_full_limit_names_its_holders(app: Penstock) -> None:
    seen: list[Explanation] = []

    @app.task(name="alone", limits=[Concurrency(1)])
    def alone(first: bool) -> None:
        if first:
            drain(app)  # another worker, which may not run what it finds
            seen.append(app.explain(waiting))

    holder = alone.enqueue(True)
    waiting = alone.enqueue(False)
    drain(app)
    assert [cause.kind for cause in seen[0].causes] == ["limit_full"]
    assert seen[0].causes[0].detail["holders"] == [holder.id]


def test_a_run_is_explained_by_its_steps(app: Penstock) -> None:
    @app.pipeline(name="approved")
    def approved(number: int) -> Any:
        return app.tasks["quick"](wait_for("approve", timeout=3600, default=1))

    run = approved.trigger(1)
    drain(app)
    told = app.explain(run)
    assert "waits_for_signal" in kinds(told)
    assert f"penstock signal {run.id} approve" in told.text
    assert "@end" not in told.text, "that the run waits for its steps goes without saying"
    run.pause()
    assert kinds(app.explain(run))[0] == "run_paused"
    run.resume()
    (step,) = [step for step in run.steps() if step.status == "waiting"]
    assert kinds(app.explain(step.id)) == ["waits_for_signal"]
    follower = approved.options(delay=60).trigger(2)
    assert kinds(app.explain(follower)) == ["not_due"]
    chained = run.then(approved, 3)
    pending = [each for each in app.runs(status="pending") if each != follower]
    assert kinds(app.explain(pending[0])) == ["waits_for_run"]
    assert chained is not None
    run.signal("approve", 5)
    drain(app)
    assert kinds(app.explain(run)) == ["ended"]
