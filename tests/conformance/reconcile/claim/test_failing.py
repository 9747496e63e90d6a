"""reconcile/outcome: a failing row waits longer each time, and no other row waits for it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from penstock import Penstock, Retry
from penstock.reconcile.events import RowSettled
from penstock.testing import travel
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.apply.test_apply import heard
from tests.conformance.reconcile.claim.test_claims import now
from tests.conformance.reconcile.cloud import Cloud, Volume, declare, ids

Hands = Callable[..., ManualReconciler]
PLAIN = Retry(delay=5, factor=2, jitter=0)


def broken(item: Any) -> None:
    raise ConnectionError(f"no answer for {item.id}")


def test_a_failing_row_is_released_at_once_and_backs_off_by_its_own_count(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, broken, every=1, backoff=PLAIN))
    for attempt, wait in ((1, 5), (2, 10), (3, 20)):
        assert mine.visit() == 1
        row = cloud.get(Volume, 1)
        assert (row.process_attempts, row.lock_token, row.status) == (attempt, None, "submitted")
        assert timedelta(seconds=wait / 2) < row.next_process_at - now(app) <= timedelta(seconds=wait)
        travel(app, wait + 1)


def test_failing_rows_never_stay_at_the_head(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    """Every row at the head fails, always, and there are more of them than fit into a batch."""
    cloud.volumes(20)
    seen: list[int] = []

    def work(item: Any) -> None:
        if item.id <= 15:
            broken(item)
        seen.append(item.id)

    mine = hand(declare(app, Volume, work, every=60, backoff=PLAIN))
    for _ in range(4):
        mine.visit(5)
    assert seen == [16, 17, 18, 19, 20]


def test_success_clears_the_count_and_the_record(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, broken, backoff=PLAIN))
    mine.visit()
    assert failures(app) == [("broken", "1", 1, "ConnectionError", "no answer for 1")]
    with travel(app, 10):
        (item,) = mine.take()
        assert item.attempts == 1
        mine.finish(mine.end(item))
    assert (cloud.get(Volume, 1).process_attempts, failures(app)) == (0, [])


def test_after_the_last_attempt_the_row_becomes_what_was_declared(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)
    settled = heard(app, RowSettled)
    reconciler = declare(
        app,
        Volume,
        broken,
        where=Volume.status == "submitted",
        max_attempts=3,
        on_exhausted={"status": "failed"},
        backoff=PLAIN,
    )
    mine = hand(reconciler)
    for _ in range(5):
        mine.visit()
        travel(app, 3600)
    assert [event.outcome for event in settled] == ["errored", "errored", "exhausted"]
    row = cloud.get(Volume, 1)
    assert (row.status, row.process_attempts, row.lock_token) == ("failed", 0, None)


def test_what_becomes_of_it_can_depend_on_the_row(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    reconciler = declare(
        app, Volume, broken, max_attempts=1, on_exhausted=lambda item: {"ip": f"gave up on {item.row.name}"}
    )
    hand(reconciler).visit()
    assert cloud.get(Volume, 1).ip == "gave up on v1"


def test_an_end_that_the_database_refuses_leaves_the_row_failing(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(2)
    reconciler = declare(
        app, Volume, broken, where=Volume.id == 1, max_attempts=1, on_exhausted={"name": "v2"}, backoff=PLAIN
    )
    hand(reconciler).visit()
    row = cloud.get(Volume, 1)
    assert (row.name, row.lock_token) == ("v1", None), "free again, and tried again"


def test_a_row_given_back_has_not_been_touched(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(2)
    before = cloud.all(Volume)
    mine = hand(declare(app, Volume))
    mine.give_back(*mine.take())
    assert cloud.all(Volume) == before
    assert ids(mine.take()) == [1, 2]


@pytest.mark.parametrize("kind", ["crash", "error"])
def test_a_crash_spends_no_attempt(app: Penstock, cloud: Cloud, hand: Hands, kind: str) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, broken, lease=30, backoff=PLAIN))
    if kind == "error":
        mine.visit()
    else:
        mine.take()
    with travel(app, 40):
        (item,) = hand(mine.reconciler).take()
    assert (item.attempts, item.recovered) == ((0, True) if kind == "crash" else (1, False))


def failures(app: Penstock) -> list[Any]:
    table = app.metadata.tables[f"{app.database.prefix}row_failures"]
    with app.database.engine.begin() as connection:
        columns = [table.c[name] for name in ("reconciler", "row_key", "attempts", "error_type", "error")]
        return [tuple(row) for row in connection.execute(select(*columns))]
