"""queue/stack_dumps, runtime/stacks: Stacks on demand, of a real worker: one that is stuck answers, one that is
frozen is said not to.
"""

import os
import signal

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from penstock import Penstock
from penstock.operate.processes import list_processes
from tests.conformance.dashboard.browser import browser
from tests.conformance.dashboard.test_stacks import answered, seen
from tests.waiting import eventually
from tests.workers import Workers

MODULE = """
import time

from penstock import Penstock

app = Penstock()


@app.task(name="stuck")
async def stuck_in_a_loop(seconds: float) -> None:
    time.sleep(seconds)  # the event loop stands still
"""


@pytest.mark.process
def test_a_process_whose_event_loop_is_stuck_shows_where(app: Penstock, worker_process: Workers) -> None:
    """A real worker: its housekeeping has a thread of its own, and answers for the one that stands still."""
    app.prepare()
    worker = worker_process("--processes", "0", module=MODULE)
    app.task(name="stuck")(_stuck).enqueue(600)
    process = eventually(lambda: [row for row in app.database.read(list_processes) if row.holding])[0]
    ann = browser(app)
    assert seen(ann, process.id) is None
    done = ann.act("ask-stacks", process=process.id)
    assert done.status == 200, done.text
    text = answered(ann, process.id)
    assert "in stuck_in_a_loop" in text
    assert "time.sleep(seconds)" in text
    assert "MainThread" in text
    (act,) = app.audit(process.id)
    assert (act.act, act.kind, act.by) == ("ask_stacks", "process", "ann")

    os.kill(worker.pid, signal.SIGSTOP)
    try:
        assert ann.act("ask-stacks", process=process.id).status == 200
        found = seen(ann, process.id)
        assert (found["answered_at"], found["text"], found["late"]) == (None, None, False)
        app.database.shift_clock(60_000_000)
        assert seen(ann, process.id)["late"]
        page = ann.get(f"/processes/{process.id}").text
        assert f"kill -USR1 {process.pid}" in page
        assert "does not answer" in page
    finally:
        app.database.shift_clock(0)
        os.kill(worker.pid, signal.SIGCONT)
    assert "in stuck_in_a_loop" in answered(ann, process.id)
    worker.kill()


async def _stuck(seconds: float) -> None: ...
