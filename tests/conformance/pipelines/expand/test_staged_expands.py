"""pipelines/advance/expand: elements of a large expand get no row in the queue before all are staged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Penstock
from penstock.pipelines.run import Run
from penstock.telemetry.events import RunRepaired
from penstock.testing import drain
from tests.conformance.pipelines.random_worker import RandomWorker
from tests.conformance.rows import count, rows

WIDTH, CHUNK = 7, 2
STAGES = 4
"""So many chunks are staged before the first is released."""


class Wide:
    """A run with a large expand, of which so many chunks have been done."""

    def __init__(self, make_app: Callable[..., Penstock], turns: int) -> None:
        self.app = app = make_app(inline_fanout=2)
        self.ran: list[int] = []
        many = app.task(name="many")(lambda n: list(range(n)))
        total = app.task(name="total")(lambda found: max(found) + 1)

        @app.task(name="each")
        def each(x: int) -> int:
            self.ran.append(x)
            return x

        @app.pipeline(name="wide")
        def wide(n: int) -> Any:
            return total(each.map(many(n)).collect())

        self.worker = RandomWorker(app, 0)
        self.run: Run = wide.trigger(WIDTH)
        drain(app, limit=1)
        app.engine.chores.advancer.chunk = CHUNK
        for _ in range(turns):
            self.turn()

    def turn(self) -> bool:
        return bool(self.app.database.in_transaction(self.app.engine.chores.advancer.turn))

    def claim_all(self) -> int:
        """Claim whatever can be claimed; of a paused run, that parks it."""
        found = 0
        while count(self.app, "availabilities"):
            found += len(self.app.database.in_transaction(self.worker.settle_and_claim, [], 50))
        self.worker.source.committed()
        return found

    def ends_well(self) -> bool:
        drain(self.app)
        return self.run.result(1) == WIDTH and sorted(self.ran) == list(range(WIDTH))


@pytest.mark.parametrize("turns", [1, STAGES, STAGES + 1])
def test_a_run_with_an_expand_under_way_is_not_repaired(
    make_app: Callable[..., Penstock], turns: int
) -> None:
    wide = Wide(make_app, turns)
    told: list[RunRepaired] = []
    wide.app.events.on(RunRepaired, told.append)
    places = count(wide.app, "availabilities")
    assert wide.app.engine.chores.repair(age=-1) == []
    assert (told, wide.app.audit(wide.run)) == ([], [])
    assert count(wide.app, "availabilities") == places
    assert wide.ends_well()


def test_what_is_lost_beside_an_expand_is_found_when_that_is_done(make_app: Callable[..., Penstock]) -> None:
    wide = Wide(make_app, STAGES + 1)
    wide.app.database.in_transaction(lambda tx: tx.run("DELETE FROM {availabilities}"))
    assert wide.app.engine.chores.repair(age=-1) == []
    while wide.turn():
        pass
    assert [found.run for found in wide.app.engine.chores.repair(age=-1)] == [wide.run.id]
    assert wide.ends_well()


@pytest.mark.parametrize("turns", [1, STAGES])
def test_a_run_that_is_resumed_while_it_is_staged_waits_for_all_of_it(
    make_app: Callable[..., Penstock], turns: int
) -> None:
    wide = Wide(make_app, turns)
    wide.run.pause()
    wide.run.resume()
    assert count(wide.app, "availabilities") == 0, "no element before all are released"
    assert wide.ends_well()


def test_elements_that_were_parked_in_the_middle_of_a_release_go_on_when_resumed(
    make_app: Callable[..., Penstock],
) -> None:
    wide = Wide(make_app, STAGES + 1)
    wide.run.pause()
    assert (wide.claim_all(), count(wide.app, "availabilities")) == (0, 0), "the released ones are parked"
    wide.turn()
    wide.claim_all()
    wide.run.resume()
    released = (
        "SELECT DISTINCT j.path FROM {availabilities} a JOIN {jobs} j ON j.id = a.job_id ORDER BY j.path"
    )
    assert [int(path, 16) for (path,) in rows(wide.app, released)] == [0, 1, 2, 3]
    assert wide.ends_well()
