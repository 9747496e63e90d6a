"""operate/diagnosis/damage: Rows that a hand has changed: the doctor names each, and its repair puts back what must
hold.
"""

from collections.abc import Callable

import pytest

from penstock import Penstock, wait_for
from penstock.job import Job
from penstock.operate.diagnosis import damage
from penstock.operate.diagnosis.damage import Damage
from penstock.operate.doctor import Level
from penstock.pipelines.run import Run
from penstock.testing import drain, travel
from penstock.values.ids import new_id
from tests.commands import call
from tests.conformance.operate.helpers import enqueue, register, take
from tests.conformance.operate.test_doctor import bad
from tests.conformance.rows import count

GREATEST = 2**63 - 1


def change(app: Penstock, sql: str, **parameters: object) -> None:
    app.database.in_transaction(lambda tx: tx.run(sql, **parameters))


def found(app: Penstock) -> list[Damage]:
    return damage.find(app.database)


def test_nothing_is_damaged_where_all_is_well(app: Penstock) -> None:
    jobs = [enqueue(app, "quick", number) for number in range(3)]
    enqueue(app, "fail", 1)
    enqueue(app, "quick", 9, delay=1000)
    drain(app)
    enqueue(app, "quick", 4)
    take(app, register(app))
    enqueue(app, "quick", 5)
    assert found(app) == []
    assert damage.repair(app.database) == []
    assert [job.status for job in jobs] == ["succeeded"] * 3


def _receipt_deleted(app: Penstock, job: Job) -> str:
    process = register(app)
    take(app, process)
    change(app, "DELETE FROM {claims}")
    change(app, "DELETE FROM {processes} WHERE id = :id", id=process)
    return f"job {job.id} runs in process {process}, which is gone"


def _receipt_garbled(app: Penstock, job: Job) -> str:
    take(app, register(app))
    change(app, "UPDATE {claims} SET job_ids = 'nope'")
    change(app, "DELETE FROM {processes}")
    return "the receipt of claim"


def _holder_unknown(app: Penstock, job: Job) -> str:
    take(app, register(app))
    change(app, "DELETE FROM {claims}")
    change(app, "UPDATE {job_states} SET token = NULL, process_id = NULL")
    return f"job {job.id} runs in process"


def _no_place(app: Penstock, job: Job) -> str:
    change(app, "DELETE FROM {availabilities}")
    return f"job {job.id} is ready, but has no place"


def _no_time(app: Penstock, job: Job) -> str:
    change(app, "DELETE FROM {availabilities}")
    change(app, "UPDATE {job_states} SET status = 'scheduled'")
    return f"job {job.id} waits for its time"


def _counts(app: Penstock, job: Job) -> str:
    change(app, "UPDATE {job_states} SET generation = :most, crash_count = 2147483647", most=GREATEST)
    return f"job {job.id} has counts that cannot be"


@pytest.mark.parametrize(
    "damaged", [_receipt_deleted, _receipt_garbled, _holder_unknown, _no_place, _no_time, _counts]
)
def test_a_job_goes_on_after_a_repair(app: Penstock, damaged: Callable[[Penstock, Job], str]) -> None:
    job = enqueue(app, "quick", 7)
    words = damaged(app, job)
    assert any(words in one.message for one in found(app)), found(app)
    assert words in bad(app)["rows"].message
    assert all(mended for _, mended in damage.repair(app.database))
    assert found(app) == []
    with travel(app, 10):
        drain(app)
        drain(app)
    assert job.result(0) == 7


def _unknown_status(app: Penstock, job: Job) -> str:
    change(app, "UPDATE {job_states} SET status = 'zzz'")
    return f"job {job.id} has the status 'zzz'"


def _no_state(app: Penstock, job: Job) -> str:
    change(app, "DELETE FROM {job_states}")
    return f"job {job.id} (quick) has no state"


@pytest.mark.parametrize("damaged", [_unknown_status, _no_state])
def test_what_cannot_be_known_is_left_to_a_person(
    app: Penstock, damaged: Callable[[Penstock, Job], str]
) -> None:
    job = enqueue(app, "quick", 7)
    words = damaged(app, job)
    assert words in bad(app)["rows"].message
    assert [mended for _, mended in damage.repair(app.database)] == [True]
    assert found(app) == []
    assert job.status == "failed"
    job.retry()
    drain(app)
    assert job.result(0) == 7


def test_the_state_of_a_job_that_is_gone_goes_too(app: Penstock) -> None:
    enqueue(app, "quick", 7)
    change(app, "DELETE FROM {jobs}")
    assert "the job is gone" in bad(app)["rows"].message
    damage.repair(app.database)
    drain(app)
    assert found(app) == []
    assert (count(app, "job_states"), count(app, "availabilities")) == (0, 0)


def test_a_run_of_unknown_mode_ends_with_what_it_has(app: Penstock) -> None:
    @app.pipeline(name="twice")
    def twice(number: int) -> object:
        return app.tasks["quick"](app.tasks["quick"](number))

    run = twice.trigger(1)
    change(app, "UPDATE {runs} SET mode = 'zzz', status = 'yyy'")
    assert f"run {run.id} has the status 'yyy' and the mode 'zzz'" in bad(app)["rows"].message
    assert run.status == "yyy", "shown as it is"
    damage.repair(app.database)
    assert found(app) == []
    for _ in range(3):
        drain(app)
    assert run.status == "halted"


def test_a_timer_of_a_run_that_is_gone_goes_too(app: Penstock) -> None:
    row = {"id": new_id(), "kind": "zzz", "run_id": new_id(), "job_id": None, "data": None, "due_at": 1}
    app.prepare()
    app.database.in_transaction(lambda tx: tx.insert("timers", [row]))
    assert "a timer of kind 'zzz'" in bad(app)["rows"].message
    damage.repair(app.database)
    assert (found(app), count(app, "timers")) == ([], 0)


def _waiting_run(app: Penstock) -> Run:
    @app.pipeline(name="asks")
    def asks() -> object:
        return wait_for("go")

    run = asks.trigger()
    drain(app)
    assert run.status == "running"
    return run


def test_a_timer_of_an_unknown_kind_is_named(app: Penstock) -> None:
    """The log sends its reader to the doctor. Nothing mends it: a worker of a newer version may want it."""
    run = _waiting_run(app)
    row = {"id": new_id(), "kind": "zzz", "run_id": run.id, "job_id": None, "data": None, "due_at": 1}
    app.database.in_transaction(lambda tx: tx.insert("timers", [row]))
    named = bad(app)["rows"]
    assert f"a timer of run {run.id} has the unknown kind 'zzz'" in named.message
    assert "newer version" in named.advice
    assert f"penstock cancel {run.id}" in named.advice
    assert [mended for _, mended in damage.repair(app.database)] == [False]
    assert count(app, "timers") == 1


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("UPDATE {definitions} SET text = 'nope'", "cannot be read"),
        ("DELETE FROM {definitions}", "is missing"),
    ],
)
def test_a_definition_that_runs_need_is_named(app: Penstock, sql: str, words: str) -> None:
    run = _waiting_run(app)
    change(app, sql)
    named = bad(app)["rows"]
    assert f"the definition {run.definition} {words}" in named.message
    assert run.id in named.message
    assert "backup" in named.advice
    assert [mended for _, mended in damage.repair(app.database)] == [False]


def test_a_missing_definition_that_the_app_can_make_is_no_problem(
    app: Penstock, make_app: Callable[..., Penstock]
) -> None:
    """Workers with that code go on without the row."""
    _waiting_run(app)
    change(app, "DELETE FROM {definitions}")
    assert "rows" not in {one.check for one in app.doctor() if one.level is not Level.OK}
    assert damage.repair(app.database, app.find_pipeline) == []
    other = make_app()
    other.pipeline(name="asks")(lambda: wait_for("other"))
    assert "is missing" in next(one.message for one in other.doctor() if one.check == "rows")


@pytest.mark.parametrize("text", ["nope", "{}"])
def test_a_definition_that_cannot_be_read_is_a_problem_although_the_app_can_make_it(
    app: Penstock, text: str
) -> None:
    """A worker takes its own definition only in place of a row that is gone."""
    _waiting_run(app)
    change(app, "UPDATE {definitions} SET text = :text", text=text)
    assert "cannot be read" in next(one.message for one in app.doctor() if one.check == "rows")


def test_the_definition_of_a_run_that_is_over_is_not_asked_for(app: Penstock) -> None:
    run = _waiting_run(app)
    run.signal("go")
    drain(app)
    assert run.result(timeout=0) is None
    change(app, "DELETE FROM {definitions}")
    assert found(app) == []


def test_a_reader_sees_an_unknown_value_as_it_is(app: Penstock, database_url: str) -> None:
    @app.pipeline(name="once")
    def once(number: int) -> object:
        return app.tasks["quick"](number)

    run, job = once.trigger(1), enqueue(app, "fail", 1)
    drain(app)
    change(app, "UPDATE {job_states} SET status = 'zzz', reason = 'yyy'")
    change(app, "UPDATE {executions} SET outcome = 'xxx', started_at = :most", most=GREATEST)
    change(app, "UPDATE {runs} SET status = 'www', mode = 'vvv', reasons = '[\"uuu\"]'")
    register(app, details="nope")
    for command in (
        ["jobs"],
        ["runs"],
        ["status"],
        ["processes"],
        ["dead-letters"],
        ["doctor"],
        ["show", job.id],
        ["show", run.id],
        ["show", run.id, "--json"],
    ):
        result = call(command[0], "--database", database_url, *command[1:])
        assert result.exit_code in (0, 1), (command, result.output[-500:], result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit), command
    assert "zzz" in call("jobs", "--database", database_url).output
    assert "www" in call("runs", "--database", database_url).output
    assert (job.status, run.status, [str(reason) for reason in run.reasons]) == ("zzz", "www", ["uuu"])
    assert [attempt.outcome for attempt in job.attempts()] == ["xxx"]
