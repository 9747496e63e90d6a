"""What must hold when everything is over, whatever was killed, frozen or cut off on the way."""

import asyncio
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from penstock import Penstock
from tests.process.run_plays import unended
from tests.process.scenes import unfinished, work_until_over
from tests.waiting import eventually

EMPTY_AT_THE_END = ("claims", "availabilities", "scheduled", "cancellations", "processes")
SPENDS_RETRY = ("errored", "timed_out")


def declare_dead(app: Penstock) -> None:
    """Let the last heartbeat of every process be long ago, as it would be after a while: no process lives any more."""
    app.database.in_transaction(lambda tx: tx.run("UPDATE {processes} SET heartbeat_at = 0"))


def recover(app: Penstock) -> None:
    """A fresh worker does what is left to do, ends what runs there are, buries who was declared dead, and leaves."""
    failure: list[BaseException] = []

    def live() -> None:
        try:
            asyncio.run(work_until_over(app, and_also=lambda: not (unended(app) or _declared_dead(app))))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=live)
    thread.start()
    thread.join()
    assert not failure, f"{unfinished(app)} jobs are left, {failure[0]!r}"


def _declared_dead(app: Penstock) -> int:
    return int(rows(app, "SELECT count(*) FROM {processes} WHERE heartbeat_at = 0")[0][0])


Job = dict[str, Any]


def check(
    app: Penstock, diary: Path | None = None, every_claim_recorded: bool = True, steered: bool = False
) -> dict[str, Job]:
    """Nothing lost, nothing settled twice, budgets right, nothing left behind. The jobs by id.

    A claim of which its process never knew, because the answer was lost, is given back without an attempt.
    """
    left = {table: _count(app, table) for table in EMPTY_AT_THE_END}
    assert not any(left.values()), left
    jobs = _jobs(app)
    for job in jobs.values():
        _check_job(job)
        if not steered:
            _check_retries(job)
        assert job["generation"] >= len(job["attempts"])
        if every_claim_recorded:
            assert job["generation"] == len(job["attempts"]), ("each claim ends exactly once", job)
    if diary is not None:
        _check_diary(jobs, diary)
    return jobs


def settled(app: Penstock, timeout: float = 60) -> None:
    """Wait until every job is over and all processes have left."""
    eventually(lambda: unfinished(app) == 0, timeout)


def done(app: Penstock) -> int:
    """How many jobs have succeeded."""
    return int(rows(app, "SELECT count(*) FROM {job_states} WHERE status = 'succeeded'")[0][0])


def rows(app: Penstock, sql: str, **parameters: object) -> list[tuple[Any, ...]]:
    return app.database.read(lambda tx: tx.rows(sql, **parameters))


def _count(app: Penstock, table: str) -> int:
    return int(rows(app, f"SELECT count(*) FROM {{{table}}}")[0][0])


def _jobs(app: Penstock) -> dict[str, Job]:
    """Every job with its state and its attempts in order."""
    attempts: dict[str, list[str]] = defaultdict(list)
    for job_id, outcome in rows(app, "SELECT job_id, outcome FROM {executions} ORDER BY job_id, generation"):
        attempts[str(job_id)].append(outcome)
    columns = "id, task, queue, max_crashes, status, reason, generation, retry_count, crash_count, token"
    found = rows(app, f"SELECT {columns} FROM {{jobs}} j JOIN {{job_states}} s ON s.job_id = j.id")
    jobs = [dict(zip(columns.split(", "), row, strict=True)) for row in found]
    assert len(jobs) == _count(app, "jobs") == _count(app, "job_states"), "half a job"
    return {str(job["id"]): job | {"attempts": attempts[str(job["id"])]} for job in jobs}


def _check_job(job: Job) -> None:
    attempts: list[str] = job["attempts"]
    assert job["token"] is None, job
    assert job["crash_count"] == attempts.count("crashed"), ("only a crash spends a crash", job)
    match job["status"]:
        case "succeeded":
            assert attempts.count("succeeded") == 1, ("settled twice", job)
            assert attempts[-1] == "succeeded", ("nothing follows a success", job)
        case "failed" | "cancelled":
            assert "succeeded" not in attempts, job
        case "skipped":
            assert not attempts, job
        case _:
            raise AssertionError(f"not over: {job}")


def _check_retries(job: Job) -> None:
    """Every error but the last one of a job that failed was answered with a retry; a retry by hand begins anew."""
    errors = sum(job["attempts"].count(kind) for kind in SPENDS_RETRY)
    ended_by_error = job["status"] == "failed" and job["attempts"][-1] in SPENDS_RETRY
    assert job["retry_count"] == errors - ended_by_error, ("only an error spends a retry", job)


def _check_diary(jobs: dict[str, Job], diary: Path) -> None:
    """The body of a job that is over ran at least once, and never twice under one claim."""
    lines = [line.split() for line in diary.read_text().splitlines()] if diary.exists() else []
    runs = Counter((job_id, attempt) for job_id, attempt, _ in lines)
    assert not [run for run, times in runs.items() if times > 1], "run twice under one claim"
    began = {job_id for job_id, _ in runs}
    assert not [job for id, job in jobs.items() if job["status"] == "succeeded" and id not in began]
