"""runtime/supervisor/child_reaper: the supervisor's keeper, one turn at a time."""

from collections.abc import Iterator

import pytest

from penstock import Penstock
from penstock.queue import reclaim
from penstock.runtime.supervisor.child_reaper import ChildReaper
from penstock.telemetry.events import Event, TroubleBegan, TroubleEnded
from penstock.testing import drain
from penstock.values.typed_json.json_text import dumps
from tests.conformance.faults import disconnected
from tests.conformance.operate.helpers import declare_tasks, enqueue, register, take
from tests.conformance.refusing import refusing_the_end_of
from tests.waiting import eventually


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


def test_a_job_of_a_stopped_child_that_cannot_be_given_back_stops_nothing(
    app: Penstock, keeper: ChildReaper
) -> None:
    """The next child is reaped too, and the job is taken back when that goes."""
    declare_tasks(app)
    jobs = [enqueue(app, "quick", number) for number in range(4)]
    for child_key in ("a", "b"):
        take(app, register(app, supervisor=keeper.id, details=dumps({"birth": child_key})), limit=2)
        keeper.reap_child(child_key, released=True)
    with refusing_the_end_of(app, jobs[0].id):
        keeper.guarded_turn()
        assert not keeper.dead
        assert [job.status for job in jobs] == ["running", "available", "available", "available"]
    assert [attempt.outcome for job in jobs[1:] for attempt in job.attempts()] == ["released"] * 3

    def is_taken_back() -> bool:
        keeper.guarded_turn()
        return jobs[0].status == "available"

    eventually(is_taken_back)
    drain(app)
    assert [job.result(timeout=0) for job in jobs] == [0, 1, 2, 3]
