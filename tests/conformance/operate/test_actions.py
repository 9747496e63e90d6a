"""operate/actions: Doing something about many jobs: in batches, counted, repeatable."""

import pytest

from penstock import Penstock
from penstock.operate import actions
from penstock.operate.dead_letters import by_reason, dead_letters
from penstock.testing import drain, travel
from tests.conformance.operate.helpers import enqueue, look, register, take


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "BATCH", 3)


def test_many_are_retried_in_batches_and_counted(app: Penstock) -> None:
    app.tasks["fail"].enqueue_many([(n,) for n in range(8)])
    drain(app)
    ids = [job.id for job in app.dead_letters(limit=None)]
    told: list[int] = []
    assert sorted(actions.retry(app, ids, told.append)) == sorted(ids)
    assert told == [3, 3, 2]
    assert len(app.dead_letters()) == 0
    assert look(app).queues[0].available == 8
    assert actions.retry(app, ids) == [], "what waits cannot be retried"


def test_many_are_discarded(app: Penstock) -> None:
    app.tasks["fail"].enqueue_many([(n,) for n in range(4)])
    drain(app)
    letters = app.dead_letters(limit=2)
    assert letters.discard() == 2
    assert letters.discard() == 0
    assert len(app.dead_letters()) == 2


def test_many_are_cancelled_wherever_they_are(app: Penstock) -> None:
    running = enqueue(app, "quick", 0)
    take(app, register(app))
    waiting = [enqueue(app, "quick", number, delay=number * 60) for number in range(4)]
    done = actions.cancel(app, [running.id, *(job.id for job in waiting)])
    assert sorted(done) == sorted([running.id, *(job.id for job in waiting)])
    assert [job.status for job in waiting] == ["cancelled"] * 4
    assert running.status == "running"
    assert actions.cancel(app, [job.id for job in waiting]) == []


def test_pruning_takes_all_that_is_old_and_nothing_else(app: Penstock) -> None:
    app.tasks["quick"].enqueue_many([(n,) for n in range(7)])
    dead = enqueue(app, "fail", 1)
    drain(app)
    with travel(app, 3600):
        young, waiting = enqueue(app, "quick", 1), enqueue(app, "quick", 2, delay=60)
        drain(app)
        told: list[int] = []
        assert actions.prune(app.database, 1800, told.append) == 8
        assert sum(told) == 8
        assert (young.status, waiting.status) == ("succeeded", "scheduled")
        assert len(app.dead_letters()) == 0
        assert actions.prune(app.database, 1800) == 0
    with pytest.raises(Exception, match="there is no job"):
        _ = dead.status


def test_dead_letters_are_summed_up_by_task_and_reason(app: Penstock) -> None:
    app.tasks["fail"].enqueue_many([(n,) for n in range(3)])
    drain(app)
    assert app.database.read(by_reason) == [("fail", "retries_exhausted", 3)]
    (letter, *_) = app.database.read(dead_letters, None, None, None, 1)
    assert (letter.task, letter.reason, letter.queue) == ("fail", "retries_exhausted", "default")
    assert (letter.error or "").startswith("ValueError: number ")
