"""queue/limits/waiting_line: jobs behind a long line of cancelled jobs need not wait for them."""

import pytest

from penstock import Concurrency, Penstock, Rate
from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.queue import control
from penstock.queue.limits import waiting_line
from penstock.runtime.liveness.limit_keeper import LimitKeeper
from penstock.testing import drain, travel
from tests.conformance.concurrent_workers import parked

MOST = 10


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many were looked for, each time that a worker looked at the head of a line."""
    found: list[int] = []
    rows = Transaction.rows

    def looked(tx: Transaction, template: str, **parameters: object) -> list[Row]:
        if template is waiting_line.NEXT:
            found.append(int(str(parameters["limit"])))
        return rows(tx, template, **parameters)

    monkeypatch.setattr(Transaction, "rows", looked)
    monkeypatch.setattr(waiting_line, "MOST_EXAMINED", MOST)
    return found


def test_it_is_gone_through_at_once_and_in_large_pieces(app: Penstock, looks: list[int]) -> None:
    ran: list[int] = []

    @app.task(limits=[Rate(1, per=60)])
    def note(number: int) -> None:
        ran.append(number)

    jobs = note.enqueue_many([(number,) for number in range(61)])
    assert drain(app) == 1
    _cancel(app, [job.id for job in jobs])
    second, third = note.enqueue_many([(61,), (62,)])
    looks.clear()
    with travel(app, 61):
        assert drain(app) == 1
    assert ran == [0, 61]
    assert second.status == "succeeded"
    assert [job for _, job in parked(app)] == [third.id]
    assert len(looks) <= 2 * (60 // MOST + 1)
    with travel(app, 122):
        assert drain(app) == 1


def test_the_housekeeping_of_lines_goes_on_without_a_pause(app: Penstock, looks: list[int]) -> None:
    @app.task(limits=[Concurrency(2)])
    def note() -> None: ...

    jobs = note.enqueue_many([()] * 45)
    _put_all_in_line(app)
    _cancel(app, [job.id for job in jobs[:-1]])
    keeper = LimitKeeper(app.database, app.wakeups, app.events)
    turns = 1
    while keeper.turn(parked=True, limited=False):
        turns += 1
    assert parked(app) == []
    assert turns <= 45 // MOST + 2
    assert drain(app) == 1
    assert jobs[-1].status == "succeeded"


def test_who_is_alive_behind_them_keeps_the_place_in_line(app: Penstock, looks: list[int]) -> None:
    ran: list[int] = []

    @app.task(limits=[Rate(1, per=60)])
    def note(number: int) -> None:
        ran.append(number)

    jobs = note.enqueue_many([(number,) for number in range(9)])
    assert drain(app) == 1
    _cancel(app, [jobs[n].id for n in (1, 2, 4, 6)])
    for minute in range(1, 6):
        with travel(app, 61 * minute):
            drain(app)
    assert ran == [0, 3, 5, 7, 8]
    assert parked(app) == []


def test_no_statement_sorts_a_whole_line_to_find_its_head(
    app: Penstock, database_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(limits=[Concurrency(2)])
    def note() -> None: ...

    note.enqueue_many([()] * 2_000)
    _put_all_in_line(app)
    explain = "EXPLAIN QUERY PLAN" if database_kind == "sqlite" else "EXPLAIN"
    plans: list[str] = []
    rows = Transaction.rows

    def explained(tx: Transaction, template: str, **parameters: object) -> list[Row]:
        if template is waiting_line.NEXT:
            many = parameters | {"limit": 500}
            plans.extend(str(row) for row in rows(tx, f"{explain} {template}", **many))
        return rows(tx, template, **parameters)

    monkeypatch.setattr(Transaction, "rows", explained)
    assert LimitKeeper(app.database, app.wakeups, app.events).turn(parked=True, limited=False)
    assert plans
    assert not any(word in line for line in plans for word in ("Sort", "TEMP B-TREE", "filesort")), plans


def _cancel(app: Penstock, ids: list[str]) -> None:
    app.database.in_transaction(control.cancel, ids)


def _put_all_in_line(app: Penstock) -> None:
    """All slots are free, and no job has been let go: as if those that held them had just ended in another process."""

    def wait(tx: Transaction) -> None:
        jobs = tx.rows("SELECT id, queue, task FROM {jobs} ORDER BY id")
        tx.run("DELETE FROM {availabilities}")
        tx.insert("limits", [{"limit_key": "line", "most": 2}])
        lined_up = [
            {"limit_key": "line", "tier": 0, "place": place, "job_id": job, "queue": queue, "task": task}
            for place, (job, queue, task) in enumerate(jobs)
        ]
        tx.insert("parked", [row | {"demands": '[["line", 2]]'} for row in lined_up], parked_at="{now}")

    app.database.in_transaction(wait)
