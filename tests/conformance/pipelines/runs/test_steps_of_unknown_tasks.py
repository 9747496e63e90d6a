"""queue/unknown_tasks, pipelines/advance/step_rows: Steps and callbacks made by a process that does not know their
tasks are as their tasks say.
"""

from __future__ import annotations

from typing import Any

from penstock import Penstock
from penstock.testing import drain
from tests.conformance.rows import rows


def declare(app: Penstock) -> Any:
    """The whole pipeline; its other side knows the first task only."""
    told: list[Any] = []

    @app.task(name="known")
    def known() -> list[int]:
        return [1, 2]

    @app.task(name="special", queue="gpu", priority=7, max_crashes=3)
    def special(value: int) -> int:
        return value

    @app.task(name="plain")
    def plain(values: list[int]) -> int:
        return sum(values)

    @app.task(name="hear", queue="mail", priority=-2, max_crashes=None)
    def hear(status: str) -> None:
        told.append(status)

    @app.task(name="page")
    def page(event: dict[str, Any]) -> None:
        told.append(event["status"])

    callbacks = [hear, page.options(queue="urgent", timeout=5)]

    @app.pipeline(name="strange", on_success=callbacks)
    def strange() -> Any:
        return plain.options(queue="slow")(special.map(known()).collect())

    return strange, told


def test_queues_and_budgets_are_those_of_the_definition(make_app: Any) -> None:
    knowing, ignorant = make_app(), make_app()
    strange, told = declare(knowing)

    @ignorant.task(name="known")
    def known() -> list[int]:
        return [1, 2]

    run = strange.trigger()
    drain(ignorant)
    described = (
        "SELECT node, queue, priority, max_crashes FROM {jobs} WHERE run_id = :run ORDER BY node, path"
    )
    assert rows(ignorant, described, run=run.id)[1:] == [("special", "gpu", 7, 3)] * 2
    drain(knowing)
    assert run.result(0) == 3
    assert told == ["succeeded"] * 2


def test_a_stranger_who_ends_the_run_enqueues_the_callbacks_as_their_tasks_say(make_app: Any) -> None:
    knowing, ignorant = make_app(), make_app()
    strange, told = declare(knowing)
    for name in ("known", "special", "plain"):
        ignorant.tasks[name] = knowing.tasks[name]
    run = strange.trigger()
    drain(ignorant)
    assert run.status == "succeeded"
    found = rows(
        ignorant,
        "SELECT task, queue, priority, max_crashes, options FROM {jobs} WHERE run_id IS NULL ORDER BY task",
    )
    assert [tuple(row[:4]) for row in found] == [("hear", "mail", -2, None), ("page", "urgent", 0, 10)]
    assert '"timeout":5' in found[1][4].replace(" ", "")
    drain(knowing)
    assert sorted(told) == ["succeeded", "succeeded"]


def test_a_deploy_that_moves_a_task_to_another_queue_moves_no_step_of_a_run_under_way(make_app: Any) -> None:
    old, new = make_app(), make_app()
    strange, _ = declare(old)
    run = strange.trigger()
    declare(new)[0]
    new.tasks["special"] = new.task(name="special2", queue="cpu")(lambda value: value)
    drain(new, limit=1)
    queues = {
        row[0]
        for row in rows(new, "SELECT queue FROM {jobs} WHERE run_id = :run AND node = 'special'", run=run.id)
    }
    assert queues == {"gpu"}
