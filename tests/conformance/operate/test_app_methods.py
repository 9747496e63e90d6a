"""operate/app_methods: From Python what the command line shows: status, processes, reconcilers, doctor, prune; sync
and async.
"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import ConfigurationError
from penstock.runtime.worker import Worker
from penstock.testing import drain, travel
from tests.conformance.embedded import beside_a_worker
from tests.conformance.reconcile.cloud import Cloud, Volume
from tests.waiting import until


def test_status_and_processes(app: Penstock) -> None:
    @app.task(name="fails", queue="mail", retries=0)
    def fails() -> None:
        raise ValueError("no")

    fails.enqueue()
    drain(app)
    fails.options(delay=60).enqueue()

    async def main(worker: Worker) -> None:
        await until(lambda: bool(app.processes()))
        (process,) = await app.processes_async()
        assert process.role == "all"
        assert not process.is_silent(app.settings.reap_after)
        seen = await app.status_async()
        assert seen == app.status()
        assert seen.workers == 1
        (mail,) = seen.queues
        assert (mail.queue, mail.scheduled, mail.failed) == ("mail", 1, 1)

    beside_a_worker(app, main)
    assert app.processes() == []


def test_reconcilers(app: Penstock) -> None:
    cloud = Cloud(app)

    @app.reconciler(Volume, where=Volume.status == "submitted", name="visit")
    def visit(item: Any) -> None:
        raise ValueError("no room")

    cloud.add(Volume, {"id": 1})
    (before,) = app.reconciler_status()
    assert (before.name, before.eligible, before.failed) == ("visit", 1, 0)
    drain(app, limit=1)

    async def main(_: Worker) -> None:
        (row,) = await app.failing_rows_async()
        assert (row.reconciler, row.row, row.error) == ("visit", "1", "ValueError: no room")
        assert [one.name for one in await app.reconciler_status_async()] == ["visit"]

    beside_a_worker(app, main)
    assert app.failing_rows(limit=0) == []


def test_doctor(app: Penstock) -> None:
    @app.task(name="fails", retries=0)
    def fails() -> None:
        raise ValueError("no")

    fails.enqueue()
    drain(app)

    async def main(_: Worker) -> None:
        found = {finding.check: finding for finding in await app.doctor_async()}
        assert found["database"].level == "ok"
        assert found["dead letters"].level == "warning"
        assert found["dead letters"].advice

    beside_a_worker(app, main)
    assert {finding.check for finding in app.doctor()} >= {"database", "schema", "clock", "dead letters"}


@pytest.mark.one_database
def test_the_doctor_of_a_database_without_a_schema_changes_nothing(
    app_on: Callable[..., Penstock], tmp_path: Path
) -> None:
    app = app_on(f"sqlite:///{tmp_path}/empty.db")
    for _ in range(2):
        findings = app.doctor()
        assert [finding.level for finding in findings] == ["ok", "problem"]
        assert "penstock migrate" in findings[-1].advice


def test_prune(app: Penstock) -> None:
    @app.task(name="work")
    def work() -> None: ...

    jobs = work.enqueue_many([() for _ in range(3)])
    drain(app)
    late = work.enqueue()
    assert app.prune("1h") == 0
    with travel(app, 7200):
        drain(app)
        told: list[int] = []
        assert app.prune(timedelta(hours=1), told=told.append) == 3
        assert sum(told) == 3
        assert [job.id for job in app.jobs()] == [late.id]
    assert jobs[0] not in app.jobs()
    assert app.audit()[0].act == "prune"
    with pytest.raises(ConfigurationError, match="older_than"):
        app.prune("long ago")
