"""pipelines/lifecycle/reminders: SIGKILL between any two statements of a reminder: it is enqueued, and the next one
set, or neither.
"""

from __future__ import annotations

import json
import os
import time
from signal import SIGKILL
from typing import Any

import pytest

from penstock import Penstock, wait_for
from penstock.telemetry import fault_points
from tests.conformance.rows import rows
from tests.forkserver import FORKS
from tests.servers.child import die_with_parent

pytestmark = pytest.mark.process

EVERY = 0.05
LONGEST = 60.0


def make(url: str) -> Penstock:
    app = Penstock(url)

    @app.task(name="nudge")
    def nudge(run_id: str, count: int) -> None: ...

    @app.pipeline(name="approval")
    def approval() -> Any:
        return wait_for("approve", remind=nudge, remind_every=EVERY)

    return app


def remind_until_killed(url: str, point: str) -> None:
    """A process that looks after runs, and dies where it is told to."""
    die_with_parent(os.getppid(), SIGKILL)
    app = make(url)
    with fault_points.watching(fault_points.crasher(f"{point}:1:kill")):
        remind(app)


def remind(app: Penstock) -> None:
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        if app.engine.chores.take_timer():
            return
        time.sleep(0.005)


def test_a_reminder_may_be_killed_anywhere(database_url: str) -> None:
    app = make(database_url)
    app.pipelines["approval"].trigger()
    reached: list[str] = []
    with fault_points.watching(reached.append):
        remind(app)
    mine = [point for point in dict.fromkeys(reached) if point.startswith("remind.")]
    assert {"remind.1", "remind.commit", "remind.committed"} <= set(mine)
    for point in mine:
        app.database.in_transaction(lambda tx: tx.run("DELETE FROM {timers}"))
        run = app.pipelines["approval"].trigger()
        process = FORKS.Process(target=remind_until_killed, args=(database_url, point), daemon=True)
        process.start()
        process.join(LONGEST)
        assert process.exitcode == -SIGKILL, point
        expected = int(point == "remind.committed")
        assert (sent(app, run.id), next_count(app, run.id)) == (expected, expected), point
        remind(app)
        assert (sent(app, run.id), next_count(app, run.id)) == (expected + 1, expected + 1), point
    app.close()


def sent(app: Penstock, run: str) -> int:
    found = rows(app, "SELECT payload FROM {jobs} WHERE task = 'nudge'")
    counts = sorted(
        json.loads(payload)["count"] for (payload,) in found if json.loads(payload)["run_id"] == run
    )
    assert counts == list(range(1, len(counts) + 1)), "each once"
    return len(counts)


def next_count(app: Penstock, run: str) -> int:
    """How many reminders the next one knows of."""
    ((data,),) = rows(app, "SELECT data FROM {timers} WHERE run_id = :run AND kind = 'remind'", run=run)
    return int(json.loads(data)[2])
