"""operate/jobs: Lists of jobs, the whole story of one, and ids that are typed by hand."""

import pytest

from penstock import Penstock
from penstock.errors import PenstockError
from penstock.operate import jobs as operate_jobs
from penstock.operate.jobs import JobFilter, JobsPage, find_job, id_range, job_report, list_jobs
from penstock.testing import drain
from penstock.values.ids import new_id
from penstock.values.status import JobStatus
from tests.conformance.operate.helpers import enqueue, register, take


def page(app: Penstock, limit: int = 50, before: str | None = None, **wanted: object) -> JobsPage:
    return app.database.read(list_jobs, JobFilter(**wanted), limit, before)  # type: ignore[arg-type]


def ids(found: JobsPage) -> list[str]:
    return [job.id for job in found.jobs]


def test_jobs_come_newest_first_page_by_page(app: Penstock) -> None:
    made = [enqueue(app, "quick", number).id for number in range(7)]
    first = page(app, limit=3)
    second = page(app, limit=3, before=first.before)
    third = page(app, limit=3, before=second.before)
    assert ids(first) + ids(second) + ids(third) == made[::-1]
    assert third.before is None


@pytest.mark.parametrize("status", list(JobStatus))
def test_each_status_finds_its_jobs_and_only_those(app: Penstock, status: JobStatus) -> None:
    failed = enqueue(app, "fail", 1)
    succeeded = enqueue(app, "quick", 1)
    cancelled = enqueue(app, "quick", 1, delay=60)
    cancelled.cancel()
    drain(app)
    running = enqueue(app, "quick", 2)
    take(app, register(app))
    scheduled = enqueue(app, "quick", 3, delay=60)
    available = enqueue(app, "quick", 4)
    expected = {
        "failed": [failed],
        "succeeded": [succeeded],
        "cancelled": [cancelled],
        "running": [running],
        "scheduled": [scheduled],
        "available": [available],
    }
    assert ids(page(app, status=status)) == [job.id for job in expected.get(status.value, [])]


def test_filters_are_combined(app: Penstock) -> None:
    enqueue(app, "fail", 1)
    wanted = enqueue(app, "fail", 1, queue="mail")
    enqueue(app, "quick", 1, queue="mail")
    drain(app)
    assert ids(page(app, queue="mail", task="fail")) == [wanted.id]
    assert ids(page(app, queue="mail", task="fail", status=JobStatus.FAILED)) == [wanted.id]
    assert ids(page(app, queue="mail", task="fail", status=JobStatus.RUNNING)) == []


def test_failed_jobs_are_paged_too(app: Penstock) -> None:
    made = [enqueue(app, "fail", number).id for number in range(5)]
    drain(app)
    first = page(app, limit=2, status=JobStatus.FAILED)
    rest = page(app, limit=10, status=JobStatus.FAILED, before=first.before)
    assert ids(first) + ids(rest) == made[::-1]


def test_a_filter_that_matches_little_says_how_far_it_came(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = enqueue(app, "quick", 1, queue="rare")
    for number in range(9):
        enqueue(app, "quick", number)
    monkeypatch.setattr(operate_jobs, "STRIDE", 2)
    monkeypatch.setattr(operate_jobs, "MOST_WALKED", 4)
    found = page(app, queue="rare")
    assert ids(found) == []
    steps = 0
    while found.before is not None and not found.jobs:
        found = page(app, queue="rare", before=found.before)
        steps += 1
    assert ids(found) == [wanted.id]
    assert steps > 0


def test_a_story_tells_everything(app: Penstock) -> None:
    job = enqueue(app, "fail", 7, key="order:7", priority=4)
    drain(app)
    told = app.database.read(job_report, job.id)
    assert told is not None
    assert (told.job.task, told.job.key, told.job.priority, told.job.status) == (
        "fail",
        "order:7",
        4,
        "failed",
    )
    assert told.job.reason == "retries_exhausted"
    assert "7" in told.payload
    ((number, process, started, finished, outcome, kind, error, traceback),) = told.attempts
    assert (number, outcome, kind, error) == (1, "errored", "ValueError", "number 7")
    assert process is not None
    assert finished >= started
    assert "raise ValueError" in traceback


def test_a_running_job_names_its_holder(app: Penstock) -> None:
    job = enqueue(app, "quick", 1)
    process = register(app)
    take(app, process)
    told = app.database.read(job_report, job.id)
    assert told is not None
    assert told.job.process_id == process
    assert told.holder is not None
    assert told.holder[:3] == ("host", 1, "all")


def test_a_scheduled_job_says_when_and_a_finished_one_what(app: Penstock) -> None:
    later, done = enqueue(app, "quick", 1, delay=60), enqueue(app, "quick", 2)
    drain(app)
    waiting, finished = (app.database.read(job_report, job.id) for job in (later, done))
    assert waiting is not None
    assert finished is not None
    assert waiting.due_at is not None
    assert waiting.due_at - waiting.job.created_at == pytest.approx(60e6, abs=1e6)
    assert finished.output == "2"


def test_there_is_no_story_of_a_job_that_is_not(app: Penstock) -> None:
    app.prepare()
    assert app.database.read(job_report, new_id()) is None


def test_an_id_may_be_shortened_as_long_as_it_is_the_only_one(app: Penstock) -> None:
    first, second = (enqueue(app, "quick", number).id for number in range(2))
    while second[:-1] == first[:-1]:  # made in the same millisecond
        second = enqueue(app, "quick", 2).id
    assert app.database.read(find_job, first) == first
    assert app.database.read(find_job, second[:-1].upper()) == second
    with pytest.raises(PenstockError, match="several ids"):
        app.database.read(find_job, first[:6])
    with pytest.raises(PenstockError, match="no job"):
        app.database.read(find_job, "00000000")


@pytest.mark.parametrize("wrong", ["", "xyz", "12-g", "0" * 33, "%"])
def test_what_is_no_id_is_refused(wrong: str) -> None:
    with pytest.raises(PenstockError, match="is not an id"):
        id_range(wrong)
