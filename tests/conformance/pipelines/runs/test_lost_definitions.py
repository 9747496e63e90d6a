"""pipelines/lifecycle/start, pipelines/advance/run_rows: a database has lost stored definitions, as after a restore
or a failover to a server that was behind, and the processes that had stored them live on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Penstock
from penstock.pipelines.lifecycle import start
from penstock.testing import drain
from penstock.values.status import RunStatus
from tests.conformance.rows import rows

FORGET = "DELETE FROM {definitions}"


def declare(app: Penstock) -> Any:
    @app.task(name="more")
    def more(number: int) -> int:
        return number + 1

    @app.pipeline(name="twice")
    def twice(number: int) -> object:
        return more(more(number))

    return twice


def forget(app: Penstock) -> None:
    app.database.in_transaction(lambda tx: tx.run(FORGET))


def test_a_producer_soon_stores_a_definition_again(
    make_app: Callable[..., Penstock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker does not know the pipeline, and so has the definition from nowhere else."""
    producer, worker = make_app(), make_app()
    twice = declare(producer)
    worker.task(name="more")(twice.host.tasks["more"].function)
    twice.trigger(1)
    forget(producer)
    monkeypatch.setattr(start, "REMEMBERED", 0.0)
    run = twice.trigger(2)
    assert len(rows(producer, "SELECT hash FROM {definitions}")) == 1
    drain(worker)
    assert (run.status, run.result(0)) == (RunStatus.SUCCEEDED, 4)


def test_in_between_a_definition_is_stored_once(app: Penstock) -> None:
    twice = declare(app)
    twice.trigger(1)
    forget(app)
    twice.trigger(2)
    assert rows(app, "SELECT hash FROM {definitions}") == []


def test_a_worker_that_has_the_definition_itself_goes_on(make_app: Callable[..., Penstock]) -> None:
    producer, worker, reader = make_app(), make_app(), make_app()
    run = declare(producer).trigger(1)
    forget(producer)
    declare(worker)
    drain(worker)
    declare(reader)
    assert (run.status, reader.run(run.id).result(0)) == (RunStatus.SUCCEEDED, 3)
    assert [step.status for step in reader.run(run.id).steps()] == ["succeeded"] * 2


def test_a_worker_with_another_definition_does_not(make_app: Callable[..., Penstock]) -> None:
    producer, worker = make_app(), make_app()
    run = declare(producer).trigger(1)
    forget(producer)
    more = worker.task(name="more")(producer.tasks["more"].function)
    worker.pipeline(name="twice")(lambda number: more(more(more(number))))
    drain(worker)
    assert run.status is RunStatus.RUNNING, "its step is tried again later"
    ((error,),) = rows(producer, "SELECT error FROM {executions}")
    assert "is missing" in str(error)
