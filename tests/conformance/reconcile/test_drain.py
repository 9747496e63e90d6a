"""testing/drain_rows: `drain(app)` visits the rows that are due beside running the jobs, and stops when nothing is
due any more.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import NOW, Penstock, Shared, Snooze
from penstock.errors import DefinitionError
from penstock.testing import drain, drain_async, travel
from tests.conformance.reconcile.cloud import Cloud, Instance, Task, Volume, idle


def test_what_is_due_is_visited_once_and_again_when_its_time_has_come(app: Penstock, cloud: Cloud) -> None:
    seen: list[int] = []

    @app.reconciler(Volume, where=Volume.status == "submitted", every=15)
    def visit(item: Any) -> dict[str, Any] | None:
        seen.append(item.id)
        return {"status": "active", "ready_at": NOW} if item.id == 1 else None

    cloud.add(Volume, {"id": 1}, {"id": 2})
    assert drain(app) == 2
    assert drain(app) == 0
    with travel(app, 16):
        assert drain(app) == 1
    assert sorted(seen) == [1, 2, 2]
    assert cloud.get(Volume, 1).status == "active"


def test_rows_and_jobs_wake_each_other(app: Penstock, cloud: Cloud) -> None:
    @app.task(name="announce")
    def announce(id: int) -> None:
        cloud.set(Volume, id, status="announced")

    @app.reconciler(Volume, where=Volume.status == "submitted", name="create")
    async def create(item: Any) -> dict[str, Any]:
        await announce.enqueue_async(item.id)
        return {"status": "active"}

    @app.reconciler(Volume, where=Volume.status == "announced", name="close", every=0)
    def close(item: Any) -> dict[str, Any]:
        return {"status": "closed"}

    cloud.add(Volume, {"id": 1})
    drain(app)
    app.hint(Volume, 1)
    drain(app)
    assert cloud.get(Volume, 1).status == "closed"


def test_an_error_and_a_snooze_are_the_rows_own(app: Penstock, cloud: Cloud) -> None:
    @app.reconciler(Volume, where=Volume.status == "submitted", timeout=0.01)
    async def visit(item: Any) -> Snooze | None:
        if item.id == 1:
            raise ValueError("no")
        if item.id == 2:
            await asyncio.sleep(60)
        return Snooze(60)

    cloud.add(Volume, {"id": 1}, {"id": 2}, {"id": 3})
    assert drain(app) == 3
    assert [cloud.get(Volume, id).process_attempts for id in (1, 2, 3)] == [1, 1, 0]


def test_a_row_that_is_always_due_does_not_keep_it_going(app: Penstock, cloud: Cloud) -> None:
    @app.reconciler(Volume, every=0)
    def visit(item: Any) -> None:
        pass

    cloud.add(Volume, {"id": 1})
    assert drain(app, limit=3) == 3
    assert drain(app) == 100


def test_some_queues_only_means_no_rows(app: Penstock, cloud: Cloud) -> None:
    @app.reconciler(Volume, name="on")
    def visit(item: Any) -> None:
        pass

    cloud.add(Volume, {"id": 1})
    assert drain(app, queues="mail") == 0
    visit.disable()
    assert drain(app) == 0
    visit.enable()
    assert drain(app) == 1


def test_async_handlers_run_on_the_callers_loop(app: Penstock, cloud: Cloud) -> None:
    loops: list[object] = []

    @app.reconciler(Volume, where=Volume.status == "submitted", name="there")
    async def visit(item: Any) -> dict[str, Any]:
        loops.append(asyncio.get_running_loop())
        return {"status": "active"}

    @app.reconciler(Volume, where=Volume.status == "active", name="then")
    def close(item: Any) -> dict[str, Any]:
        return {"status": "closed"}

    cloud.add(Volume, {"id": 1})

    async def main() -> None:
        assert await drain_async(app) == 2
        assert loops == [asyncio.get_running_loop()]

    asyncio.run(main())
    assert cloud.get(Volume, 1).status == "closed"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"wher": Volume.id == 1}, "Did you mean 'where'?"),
        ({"where": Volume.next_process_at < NOW}, r"where: NOW is .* func\.now\(\)"),
        ({"where": "status = 1"}, "is not a condition; give one such as Volume.status"),
    ],
)
def test_wrong_options_are_named(app: Penstock, options: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said.replace("?", r"\?")):
        app.reconciler(Volume, **options)(idle)


@pytest.mark.parametrize("function", [lambda: None, pow, 5])
def test_a_handler_takes_an_item(app: Penstock, function: Any) -> None:
    with pytest.raises(DefinitionError, match="item"):
        app.reconciler(Volume, name="odd")(function)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_rows_that_share_a_row_take_turns(app: Penstock, cloud: Cloud, kind: str) -> None:
    """All but one were left for a second later, though that one had long let go."""

    @app.reconciler(
        Task, where=Task.status == "submitted", locks=[Shared(Instance, Instance.id == Task.instance_id)]
    )
    def visit(item: Any) -> dict[str, Any]:
        item.update(item.shared, status="used")
        return {"status": "done"}

    cloud.add(Instance, {"id": 1})
    cloud.add(Task, *[{"id": id, "instance_id": 1} for id in (1, 2, 3, 4)])
    assert (drain(app) if kind == "sync" else asyncio.run(drain_async(app))) == 4
    assert [cloud.get(Task, id).status for id in (1, 2, 3, 4)] == ["done"] * 4


@pytest.mark.parametrize("in_async", [False, True])
def test_what_a_visit_did_in_vain_is_undone(app: Penstock, cloud: Cloud, in_async: bool) -> None:
    lost: list[tuple[int, Any]] = []

    @app.reconciler(Volume, on_lost=lambda item, values: lost.append((item.id, values)))
    def visit(item: Any) -> dict[str, Any]:
        cloud.set(Volume, item.id, lock_token=4711)
        return {"status": "active"}

    cloud.add(Volume, {"id": 1})
    if in_async:
        asyncio.run(drain_async(app, limit=1))
    else:
        drain(app, limit=1)
    assert lost == [(1, {"status": "active"})]
    assert cloud.get(Volume, 1).status == "submitted"
