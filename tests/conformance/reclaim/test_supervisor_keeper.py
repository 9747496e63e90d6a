"""runtime/supervisor/child_reaper: the supervisor's keeper, one turn at a time."""

from collections.abc import Iterator

import pytest

from penstock import Penstock
from penstock.queue import reclaim
from penstock.runtime.supervisor.child_reaper import ChildReaper
from penstock.telemetry.events import Event, TroubleBegan, TroubleEnded
from tests.conformance.faults import disconnected


@pytest.fixture
def keeper(app: Penstock) -> Iterator[ChildReaper]:
    app.prepare()
    keeper = ChildReaper(app, {}, lambda: None)
    keeper.register()
    yield keeper
    keeper.rest()


def test_a_look_that_failed_is_made_up_for_before_all_is_well(
    app: Penstock, keeper: ChildReaper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn with nothing to ask of the database says nothing about it."""
    said: list[type[Event]] = []
    for kind in (TroubleBegan, TroubleEnded):
        app.events.on(kind, lambda event: said.append(type(event)))
    look, failures = reclaim.look, [disconnected(app) for _ in range(3)]

    def fail_at_first(*args: object) -> object:
        if failures:
            raise failures.pop()
        return look(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(reclaim, "look", fail_at_first)
    keeper.guarded_turn()  # a connection that is lost once is no trouble yet
    for _ in range(2):
        keeper.guarded_turn()
        assert said == [TroubleBegan]
    keeper.guarded_turn()
    assert not failures
    assert said == [TroubleBegan, TroubleEnded]
