"""queue/reclaim, runtime/liveness/reaper: Death: whatever point a worker dies at, nothing is lost, nothing is
settled twice, and only a crash is spent.
"""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

import penstock
from penstock import Penstock, Retry
from penstock.database import database
from penstock.errors import DatabaseUnavailable, JobFailed
from penstock.queue import processes, schedule
from penstock.runtime.liveness import outage_guard
from penstock.runtime.liveness.housekeeping import Housekeeping
from penstock.telemetry import fault_points
from penstock.telemetry.events import JobCrashed, ProcessReaped
from penstock.testing import SimulatedCrash, crash_at, drain, travel
from penstock.values.ids import new_id
from tests.conformance.faults import deadlocked, disconnected, failing_at, starting_up
from tests.conformance.rows import count, counts, state

ONCE, TWICE = ["succeeded"], ["crashed", "succeeded"]


@pytest.mark.parametrize(
    ("point", "runs", "attempts"),
    [
        ("register.1", 1, ONCE),
        ("register.commit", 1, ONCE),
        ("claim.1", 1, ONCE),
        ("claim.commit", 1, ONCE),
        ("claim.committed", 1, TWICE),
        ("hand_over", 1, TWICE),
        ("execute.before", 1, TWICE),
        ("execute.after", 2, TWICE),
        ("settle.1", 2, TWICE),
        ("settle.commit", 2, TWICE),
        ("settle.committed", 1, ONCE),
        ("reap.1", 1, ONCE),
        ("reap.commit", 1, ONCE),
    ],
)
def test_a_worker_may_die_anywhere(app: Penstock, point: str, runs: int, attempts: list[str]) -> None:
    ran: list[int] = []

    @app.task(retries=0)
    def note() -> str:
        ran.append(penstock.current().attempt)
        return "done"

    job = note.enqueue()
    with crash_at(point) as crash:
        drain(app)
    assert crash.crashed
    drain(app)
    assert job.result(timeout=0) == "done"
    assert len(ran) == runs
    assert [attempt.outcome for attempt in job.attempts()] == attempts
    assert state(app, job.id)["retry_count"] == 0
    left = counts(app)
    assert (left["claims"], left["availabilities"], left["scheduled"], left["processes"]) == (0, 0, 0, 0)


@pytest.mark.parametrize("point", ["promote.1", "promote.2", "promote.commit", "promote.committed"])
def test_promotion_may_die_anywhere(app: Penstock, point: str) -> None:
    @app.task
    def note() -> None: ...

    job = note.options(delay=5).enqueue()
    with travel(app, 10):
        with crash_at(point) as crash:
            drain(app)
        assert crash.crashed
        assert drain(app) == 1
    assert [attempt.outcome for attempt in job.attempts()] == ONCE


@pytest.mark.parametrize(
    "point", ["reclaim.1", "reclaim.2", "reclaim.3", "reclaim.commit", "reclaim.committed"]
)
def test_the_reaper_may_die_too(app: Penstock, point: str) -> None:
    @app.task
    def note() -> None: ...

    job = note.enqueue()
    with crash_at("execute.after"):
        drain(app)
    with crash_at(point) as crash:
        drain(app)
    assert crash.crashed
    drain(app)
    assert [attempt.outcome for attempt in job.attempts()] == TWICE
    assert state(app, job.id)["crash_count"] == 1


def test_a_crash_loses_only_what_was_not_settled(app: Penstock) -> None:
    ran: list[int] = []

    @app.task
    def note(number: int) -> int:
        ran.append(number)
        return number

    jobs = note.enqueue_many([(n,) for n in range(5)])
    with crash_at("execute.after", visit=3) as crash:
        drain(app)
    assert crash.crashed
    drain(app)
    assert ran == [0, 1, 2, 3, 4, 2] or ran == [0, 1, 2, 2, 3, 4]
    assert [job.result(timeout=0) for job in jobs] == [0, 1, 2, 3, 4]


def die(app: Penstock, seconds: float) -> None:
    """Run until the handler kills the worker; then let another process notice."""
    with travel(app, seconds):
        with crash_at("execute.after") as crash:
            drain(app)
        assert crash.crashed
        drain(app, limit=0)


def test_crashes_have_their_own_budget_and_back_off(app: Penstock) -> None:
    @app.task(retries=5, max_crashes=5)
    def poison() -> None: ...

    job = poison.enqueue()
    waited = 0
    for crashes, delay in enumerate((0, 0, 0, 10, 20), 1):
        die(app, waited)
        spent = state(app, job.id)
        assert (spent["crash_count"], spent["retry_count"]) == (crashes, 0)
        assert job.status == ("scheduled" if delay else "available")
        if delay:
            with travel(app, waited + delay - 1):
                assert drain(app) == 0
        waited += delay
    die(app, waited)
    assert job.status == "failed"
    with pytest.raises(JobFailed, match="crashes_exhausted"):
        job.result(timeout=0)
    assert [attempt.outcome for attempt in job.attempts()] == ["crashed"] * 6


def test_no_crash_is_forgiven_without_a_budget(app: Penstock) -> None:
    @app.task(max_crashes=0)
    def poison() -> None: ...

    job = poison.enqueue()
    with crash_at("execute.before"):
        drain(app)
    assert drain(app) == 0
    assert job.status == "failed"


def test_without_a_cap_crashes_never_fail_a_job(app: Penstock) -> None:
    @app.task(max_crashes=None)
    def poison() -> None: ...

    job = poison.enqueue()
    for day in range(15):
        die(app, day * 86_400)
    with travel(app, 20 * 86_400):
        drain(app)
    assert job.status == "succeeded"
    assert len(job.attempts()) == 16


def test_poison_does_not_take_the_others_down(app: Penstock) -> None:
    @app.task(max_crashes=3)
    def poison() -> None:
        fault_points.reach("execute.poison")

    @app.task
    def fine(number: int) -> None: ...

    bad = poison.enqueue()
    good = fine.enqueue_many([(n,) for n in range(5)])
    for _ in range(4):
        with (
            fault_points.watching(_die_of_poison),
            pytest.raises(SimulatedCrash),
            travel(app, 3600),
        ):
            drain(app)
    with travel(app, 7200):
        drain(app)
    assert {job.status for job in good} == {"succeeded"}
    assert bad.status == "failed"


def _die_of_poison(point: str) -> None:
    if point == "execute.poison":
        raise SimulatedCrash(point)


def test_errors_after_crashes_still_have_their_retries(app: Penstock) -> None:
    @app.task(retries=Retry(max=1, delay=0), max_crashes=1)
    def fail() -> None:
        raise ValueError

    job = fail.enqueue()
    with crash_at("execute.before"):
        drain(app)
    drain(app)
    assert [attempt.outcome for attempt in job.attempts()] == ["crashed", "errored", "errored"]
    with pytest.raises(JobFailed, match="retries_exhausted"):
        job.result(timeout=0)


def test_a_silent_process_is_reaped_by_the_database_clock(
    app: Penstock, make_app: Callable[..., Penstock]
) -> None:
    other = make_app()
    ran: list[str] = []

    @app.task(name="note")
    def note() -> None:
        ran.append("here")

    @other.task(name="note")
    def there() -> None:
        ran.append("there")

    reaped: list[ProcessReaped] = []
    crashed: list[JobCrashed] = []
    app.events.on(ProcessReaped, reaped.append)
    app.events.on(JobCrashed, crashed.append)
    job = note.enqueue()
    with crash_at("hand_over"):
        drain(other)
    assert job.status == "running"
    with travel(app, 29):
        assert drain(app) == 0
    with travel(app, 31):
        assert drain(app) == 1
    assert ran == ["here"]
    assert len(reaped) == 1
    assert [(event.job_id, event.status) for event in crashed] == [(job.id, "available")]
    assert count(app, "processes") == 0


def test_an_outage_in_the_middle_of_judging_others_is_not_held_against_them(
    make_app: Callable[..., Penstock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins before the question and ends before the answer: meanwhile no process could be heard."""
    app = make_app(reap_after=30)
    app.prepare()
    app.database.in_transaction(processes.register, new_id(), "elsewhere", 1, "all", None, "{}")
    keeper = Housekeeping(app.database, new_id, app.wakeups, app.events, app.follow)
    with travel(app, 60):
        with failing_at("reap.1", disconnected(app)) as struck:
            monkeypatch.setattr(outage_guard, "time", SimpleNamespace(monotonic=lambda: 25.0 * len(struck)))
            assert not keeper.reaper.turn()
        assert count(app, "processes") == 1
        assert not keeper.reaper.outage_guard.may_declare_dead
        monkeypatch.undo()
        assert not keeper.reaper.turn(), "the others have not had time to be heard"
    with travel(app, 91):
        assert keeper.reaper.turn()
    assert count(app, "processes") == 0


@pytest.mark.parametrize(
    ("error", "answered"), [(disconnected, False), (starting_up, False), (deadlocked, True)]
)
def test_an_outage_counts_also_if_the_housekeeping_alone_meets_it(
    app: Penstock, monkeypatch: pytest.MonkeyPatch, error: Callable[[Penstock], Exception], answered: bool
) -> None:
    """It gives up after several tries, with an error of ours; a lock that is waited for in vain is an answer."""
    monkeypatch.setattr(database, "TRIES", 2)
    app.prepare()
    keeper = Housekeeping(app.database, new_id, app.wakeups, app.events, app.follow)

    def fail(*_: object) -> object:
        raise error(app)

    with monkeypatch.context() as patch:
        patch.setattr(schedule, "look", fail)
        with pytest.raises(DatabaseUnavailable):
            keeper.turn()
    assert keeper.reaper.outage_guard.may_declare_dead is answered
    keeper.turn()
    assert keeper.reaper.outage_guard.may_declare_dead is answered, "the others have not had time to be heard"


def test_a_live_process_is_never_reaped(app: Penstock, make_app: Callable[..., Penstock]) -> None:
    other = make_app()

    @app.task(name="note")
    def note() -> None:
        assert drain(other) == 0

    @other.task(name="note")
    def there() -> None: ...

    job = note.enqueue()
    assert drain(app) == 1
    assert job.status == "succeeded"


def test_a_cancelled_job_of_a_dead_process_stays_cancelled(app: Penstock) -> None:
    @app.task
    def note() -> None:
        app.job(penstock.current().id).cancel()

    job = note.enqueue()
    with crash_at("execute.after"):
        drain(app)
    assert drain(app) == 0
    assert job.status == "cancelled"
    assert count(app, "cancellations") == 0
