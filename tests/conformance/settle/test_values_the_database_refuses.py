"""runtime/pump/job_source: an outcome that the database does not store harms no other, and nothing is lost."""

import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

from penstock import Penstock
from penstock.database import boundary
from penstock.database.transaction import Transaction
from penstock.errors import JobFailed
from penstock.queue import settle as queue_settle
from penstock.queue import states
from penstock.queue.jobs import Attempt
from penstock.runtime.worker import Worker
from penstock.task import Task
from penstock.telemetry.events import TroubleBegan
from penstock.testing import drain
from tests.conformance.embedded import beside_a_worker
from tests.conformance.faults import deadlocked, disconnected, failing_at, out_of_disk
from tests.conformance.rows import count, counts
from tests.waiting import until

Note = Task[[int], str]


@pytest.fixture
def note(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> Note:
    """The result of 3 gets past the codec, and no database takes it."""

    @app.task(retries=0)
    def note(number: int) -> str:
        return str(number)

    encode = note.codec.encode_result

    def poisoned(value: object, *, limit: int | None = None) -> str:
        return '"\ud800"' if value == "3" else encode(value, limit=limit)

    monkeypatch.setattr(note.codec, "encode_result", poisoned)
    return note


def test_one_row_the_database_refuses_fails_by_itself(app: Penstock, note: Note) -> None:
    jobs = note.enqueue_many([(n,) for n in range(10)])
    drain(app)
    assert [job.status for job in jobs] == ["succeeded"] * 3 + ["failed"] + ["succeeded"] * 6
    with pytest.raises(JobFailed, match="result_not_serializable"):
        jobs[3].result(timeout=0)
    assert count(app, "claims") == 0


def test_a_result_larger_than_the_server_takes_stops_no_other_job(
    app_on: Callable[..., Penstock], mariadb_url: str
) -> None:
    """It says so, or only ends the connection, which looks like an outage; sooner or later it says so."""
    app = app_on(mariadb_url, payload_limit="64 MiB")

    @app.task
    def make(size: int) -> str:
        return "x" * size

    async def main(_: Worker) -> None:
        large = await make.enqueue_async(17_000_000)
        with pytest.raises(JobFailed, match=r"result_not_serializable.*max_allowed_packet"):
            await large.result_async(timeout=120)
        assert await (await make.enqueue_async(3)).result_async(timeout=60) == "xxx"

    beside_a_worker(app, main)


def test_a_batch_with_one_such_row_is_split(app: Penstock, note: Note) -> None:
    async def main(_: Worker) -> None:
        jobs = await note.enqueue_many_async([(n,) for n in range(50)])
        await until(lambda: all(job.status in ("succeeded", "failed") for job in jobs))
        assert len([job for job in jobs if job.status == "failed"]) == 1
        assert jobs[3].status == "failed"
        assert jobs[49].result(timeout=0) == "49"

    beside_a_worker(app, main)
    assert count(app, "claims") == 0
    assert count(app, "executions") == 50


def test_if_the_error_is_refused_too_the_job_has_failed_all_the_same(
    app: Penstock, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refuse_failures(monkeypatch, states, "record_attempts", lambda attempt: attempt.began)
    jobs = note.enqueue_many([(n,) for n in range(5)])
    drain(app)
    assert [job.status for job in jobs] == ["succeeded"] * 3 + ["failed", "succeeded"]
    with pytest.raises(JobFailed, match="result_not_serializable"):
        jobs[3].result(timeout=0)
    assert jobs[3].attempts() == []
    assert count(app, "claims") == 0


def test_an_attempt_whose_row_is_there_already_is_no_fault_of_its_result(app: Penstock) -> None:
    @app.task(name="fine")
    def fine(number: int) -> int:
        return number

    job, after = fine.enqueue_many([(1,), (2,)])
    row = {"job_id": job.id, "generation": 1, "outcome": "succeeded"}
    app.database.in_transaction(
        lambda tx: tx.insert("executions", [row], started_at="{now}", finished_at="{now}")
    )
    drain(app)
    assert (job.status, after.result(timeout=0)) == ("failed", 2)
    with pytest.raises(JobFailed, match="row_damaged"):
        job.result(timeout=0)
    assert len(app.dead_letters(reason="row_damaged")) == 1
    assert count(app, "claims") == 0
    job.retry()
    drain(app)
    assert job.result(timeout=0) == 1


def test_what_is_refused_in_every_form_is_tried_again_later(
    app: Penstock, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare: list[Attempt] = []
    _refuse_failures(monkeypatch, queue_settle, "_move", lambda attempt: attempt.began or len(bare) < 5, bare)
    monkeypatch.setattr(boundary, "FIRST_PAUSE", 0.05)

    async def main(_: Worker) -> None:
        job, after = await note.enqueue_many_async([(3,), (4,)])
        await until(lambda: job.status == "failed")
        assert await after.result_async(30) == "4"

    beside_a_worker(app, main)
    assert len(bare) > 2, "in a batch, then alone; then it was set aside, and tried again"
    assert count(app, "claims") == 0


def _refuse_failures(
    monkeypatch: pytest.MonkeyPatch,
    home: ModuleType,
    write: str,
    refuses: Callable[[Attempt], bool],
    bare: list[Attempt] | None = None,
) -> None:
    """Something in the database refuses what a settle writes of failed attempts; it is told of those without a row."""
    writes = getattr(home, write)

    def written(tx: Transaction, attempts: Sequence[Attempt], *rest: Any) -> None:
        failed = [attempt for attempt in attempts if attempt.outcome.status == "failed"]
        if bare is not None:
            bare.extend(attempt for attempt in failed if not attempt.began)
        if any(map(refuses, failed)):
            raise ValueError("no such text")
        writes(tx, attempts, *rest)

    monkeypatch.setattr(home, write, written)


@pytest.mark.parametrize("fault", [deadlocked, disconnected])
@pytest.mark.parametrize(
    "point", ["settle.1", "settle.commit", "settle.committed", "claim.1", "claim.committed"]
)
def test_what_passes_by_itself_costs_nothing(
    app: Penstock, fault: Callable[[Penstock], Exception], point: str
) -> None:
    @app.task(retries=0, max_crashes=0)
    def fine(number: int) -> int:
        return number

    jobs = fine.enqueue_many([(n,) for n in range(3)])
    with failing_at(point, fault(app), times=2):
        drain(app)
    drain(app)
    assert [job.result(timeout=0) for job in jobs] == [0, 1, 2]
    assert [str(attempt.outcome) for job in jobs for attempt in job.attempts()] == ["succeeded"] * 3
    assert (counts(app)["claims"], counts(app)["availabilities"]) == (0, 0)


def test_a_full_disk_is_no_fault_of_a_job(app: Penstock) -> None:
    """Outcomes are kept until the database takes them; they do not turn into errors."""
    ran = threading.Event()
    troubles: list[TroubleBegan] = []
    app.events.on(TroubleBegan, troubles.append)

    @app.task(retries=0)
    def fine(number: int) -> int:
        ran.set()
        return number

    async def main(_: Worker) -> None:
        with failing_at("settle.1", out_of_disk(app), times=4):
            jobs = await fine.enqueue_many_async([(n,) for n in range(3)])
            await until(lambda: all(job.status == "succeeded" for job in jobs))
        assert [job.result(timeout=0) for job in jobs] == [0, 1, 2]
        assert [str(attempt.outcome) for job in jobs for attempt in job.attempts()] == ["succeeded"] * 3

    beside_a_worker(app, main)
    assert troubles
    assert count(app, "claims") == 0


def test_a_wrong_row_among_the_waiting_does_not_stop_the_queue(app: Penstock) -> None:
    """Stored arguments that no worker can read are that job's error."""

    @app.task(name="fine", retries=0)
    def fine(number: int) -> int:
        return number

    bad, good = fine.enqueue(1), fine.enqueue(2)
    app.database.in_transaction(
        lambda tx: tx.run("UPDATE {jobs} SET payload = :text WHERE id = :id", text="{not json", id=bad.id)
    )
    drain(app)
    assert good.result(timeout=0) == 2
    with pytest.raises(JobFailed, match="arguments_invalid"):
        bad.result(timeout=0)
