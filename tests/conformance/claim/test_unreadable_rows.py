"""database/boundary: a row that cannot be handled stands alone: found by halving, named, left out, tried again at
growing intervals.
"""

from collections.abc import Callable, Sequence

import pytest

from penstock import Penstock
from penstock.database import boundary
from penstock.database.boundary import Boundary, do_all
from penstock.queue import reclaim
from penstock.runtime.liveness.housekeeping import Housekeeping
from penstock.telemetry.events import RowHandled, RowSetAside
from penstock.values.ids import new_id
from tests.conformance.faults import disconnected, out_of_disk
from tests.conformance.rows import count


class Ledger:
    """Handles numbers, but for those that are bad, and says what it was told."""

    def __init__(self, app: Penstock) -> None:
        self.bad: dict[int, Exception] = {}
        self.tried: list[list[int]] = []
        self.told: list[RowSetAside | RowHandled] = []
        self.boundary: Boundary[int] = Boundary(app.database, app.events, "the number")
        app.events.on(RowSetAside, self.told.append)
        app.events.on(RowHandled, self.told.append)

    def work(self, numbers: Sequence[int]) -> list[int]:
        self.tried.append(list(numbers))
        for number in numbers:
            if number in self.bad:
                raise self.bad[number]
        return list(numbers)

    def handle(self, numbers: Sequence[int]) -> list[int]:
        return sorted(n for some in self.boundary.handle(numbers, self.work) for n in some)


@pytest.fixture
def ledger(app: Penstock) -> Ledger:
    return Ledger(app)


def test_a_batch_that_is_sound_is_tried_once(ledger: Ledger) -> None:
    assert ledger.handle(range(100)) == list(range(100))
    assert (len(ledger.tried), ledger.told, ledger.boundary.left) == (1, [], [])


@pytest.mark.parametrize("bad", [[0], [99], [7, 8], [0, 50, 99], list(range(100))])
def test_the_bad_ones_stand_alone(ledger: Ledger, bad: list[int]) -> None:
    ledger.bad = {number: KeyError(number) for number in bad}
    assert ledger.handle(range(100)) == sorted(set(range(100)) - set(bad))
    assert sorted(ledger.boundary.left) == bad
    assert len(ledger.told) == len(bad)
    assert len(ledger.tried) <= 1 + 2 * 8 * len(bad)


def test_intervals_grow_and_end_when_it_goes_through(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("penstock.database.boundary.time.monotonic", lambda: now)
    ledger.bad = {3: KeyError(3)}
    for pause in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600):
        ledger.handle([3])
        assert ledger.boundary.left == [3]
        assert ledger.boundary.next_due == pause
        now += pause
        assert ledger.boundary.left == []
    ledger.bad.clear()
    assert ledger.handle([3]) == [3]
    assert isinstance(ledger.told[-1], RowHandled)
    assert ledger.boundary.is_empty


def test_an_outage_is_no_rows_fault(ledger: Ledger, app: Penstock) -> None:
    for error in (disconnected(app), out_of_disk(app)):
        ledger.bad = dict.fromkeys(range(10), error)
        with pytest.raises(type(error)):
            ledger.handle(range(10))
    assert (ledger.told, ledger.boundary.left) == ([], [])


def test_what_sounds_like_an_outage_may_be_a_row(ledger: Ledger, app: Penstock) -> None:
    ledger.bad = {4: out_of_disk(app)}
    assert ledger.handle(range(10)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert ledger.boundary.left == [4]


def test_all_chores_are_done_though_one_raises(app: Penstock) -> None:
    done: list[int] = []

    def chore(number: int) -> Callable[[], bool]:
        def do() -> bool:
            done.append(number)
            if number == 1:
                raise KeyError(number)
            return True

        return do

    with pytest.raises(KeyError):
        do_all(app.database, [chore(number) for number in range(3)])
    assert done == [0, 1, 2]


def test_what_another_has_mended_is_not_waited_for(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "FIRST_PAUSE", 0.0)
    app.prepare()
    me = new_id()
    keeping = Housekeeping(app.database, lambda: me, app.wakeups, app.events, app.follow)
    row = {"token": 5, "process_id": new_id(), "job_ids": "nope", "claimed_at": 1}
    app.database.in_transaction(lambda tx: tx.insert("claims", [row]))
    keeping.reaper.turn()
    assert keeping.reaper.reclaimer.receipts.is_empty is False
    app.database.in_transaction(lambda tx: tx.run("DELETE FROM {claims}"))
    keeping.reaper.turn()
    assert keeping.reaper.reclaimer.next_due is None, "or it would be looked for all the time"
    assert count(app, "claims") == 0
    assert app.database.read(reclaim.orphans, []) == {}
