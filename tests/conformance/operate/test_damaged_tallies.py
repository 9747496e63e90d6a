"""runtime/liveness/tally_keeper: a tally or a roll-up that was damaged keeps no other from being counted."""

import pytest
from sqlalchemy import Table, func, insert, select, update

from penstock import Penstock
from penstock.runtime.liveness import tally_keeper
from penstock.runtime.liveness.tally_keeper import TallyKeeper
from penstock.telemetry.events import RowSetAside
from penstock.values.ids import new_id

GREATEST = 2**63 - 1


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally_keeper, "FOLD_INTERVAL", 0.0)


def test_a_tally_that_cannot_be_folded_is_set_aside(app: Penstock) -> None:
    tallies, rollups = tables(app)
    aside: list[RowSetAside] = []
    app.events.on(RowSetAside, aside.append)
    with app.database.engine.begin() as connection:
        connection.execute(insert(tallies), [tally(number) for number in range(10)])
        bad = select(func.min(tallies.c.seq)).scalar_subquery()
        seq = connection.execute(select(bad)).scalar_one()
        # Its minute began before the first that there is.
        connection.execute(update(tallies).where(tallies.c.seq == seq).values(tallied_at=-GREATEST))
    process = new_id()
    keeper = TallyKeeper(app.database, lambda: process, app.events)
    for _ in range(3):
        keeper.turn()
    assert [(event.what, event.row) for event in aside] == [("the tally", str(seq))]
    with app.database.engine.begin() as connection:
        assert connection.execute(select(tallies.c.seq)).scalars().all() == [seq]
        counted = select(func.sum(rollups.c.attempts)).where(rollups.c.span == "hour")
        assert connection.execute(counted).scalar_one() == 9


@pytest.mark.parametrize("damage", [GREATEST, -GREATEST])
def test_a_damaged_roll_up_begins_anew(app: Penstock, damage: int) -> None:
    tallies, rollups = tables(app)
    process = new_id()
    keeper = TallyKeeper(app.database, lambda: process, app.events)
    for _ in range(2):
        with app.database.engine.begin() as connection:
            connection.execute(update(rollups).values(attempts=damage))
            connection.execute(insert(tallies), [tally(0), tally(1) | {"attempts": GREATEST}, tally(2)])
        keeper.turn()
    with app.database.engine.begin() as connection:
        assert connection.execute(select(func.count()).select_from(tallies)).scalar_one() == 0
        found = connection.execute(select(rollups.c.attempts)).scalars().all()
        assert set(found) == {4 * 10**18}


def tables(app: Penstock) -> list[Table]:
    app.prepare()
    names = {table.name.removeprefix(app.database.prefix): table for table in app.metadata.tables.values()}
    return [names["tallies"], names["rollups"]]


def tally(number: int) -> dict[str, object]:
    sums = {"attempts": 1, "failed": 0, "run_micros": 5, "longest": 5}
    return {"tallied_at": number, "task": "t", "queue": "q", "outcome": "succeeded", **sums}
