"""Expands: the first step of every element. Small ones in the transaction that met them, large ones in chunks.

A large expand is a row in `advancements`, written with everything else that follows from the settled step; from then
on a chore works it off, a chunk per transaction, in two phases. *Stage*: the jobs of a chunk are
written as available, but with no place in the queue, so no worker can claim them. When all are there, *release*: chunk
by chunk they get their places. The row is locked while a chunk is written, moved on in the same transaction, and
skipped by all other processes; so each chunk is written once, and a process that dies in the middle
leaves the row where its last commit put it. One that was frozen finds its connection closed, or still holds the lock:
in neither case has another process done the same chunk. No step sees half a fan-out: nothing runs before all is staged.

Where many elements wait at a door for a value from outside (see `doors`), they go on in the same way when it is there.
The row in `advancements` is the door's. Each element that goes on has its row at the door removed in the same
transaction, so each goes on once, in whichever process. None is added meanwhile: one that comes later finds it open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.pipelines.advance import join_rows, run_rows, step_rows
from penstock.pipelines.advance.run_rows import RunView
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.advance.step_rows import NewStep
from penstock.pipelines.advance.values import Values, fetch
from penstock.pipelines.model.expressions import Path, path_of, path_text
from penstock.pipelines.plan.changes import Fan
from penstock.pipelines.plan.inputs import asked_value, inputs_of
from penstock.pipelines.plan.plan import elements
from penstock.queue.jobs import tier_of
from penstock.values.ids import new_id, new_ids
from penstock.values.lazy_import import Lazy
from penstock.values.status import JobStatus
from penstock.values.typed_json.json_text import dumps
from penstock.values.typed_json.tags import raw_elements

if TYPE_CHECKING:
    from penstock.pipelines.advance import advance, finish
else:  # `finish` imports `advance`, which imports this module
    advance, finish = Lazy("penstock.pipelines.advance.advance"), Lazy("penstock.pipelines.advance.finish")

CHUNK = 2000
STAGE = "stage"
RELEASE = "release"
ADMIT = "admit"
"""Not an expand, but an open door at which many elements wait."""

NEXT = """
SELECT id, run_id, node, path, width, phase, next_index FROM {advancements} {by_key}
WHERE problem IS NULL OR updated_at < {now} - :put_off ORDER BY id LIMIT 1 {lock_skip}
"""
MOVE = """
UPDATE {advancements} SET phase = :phase, next_index = :next, problem = NULL, updated_at = {now}
WHERE id = :id AND phase = :before AND next_index = :at
"""
POSTPONE = "UPDATE {advancements} SET problem = :problem, updated_at = {now} + :wait WHERE id = :id"
PUT_OFF = 60.0
"""Seconds between the time that an expand which raised was moved on, and the next try."""
OPEN = "SELECT node, path, phase, next_index FROM {advancements} WHERE run_id = :run"
DONE = "DELETE FROM {advancements} WHERE id = :id"
STAGED = """
SELECT j.id, j.task, j.queue, j.priority FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND j.node = :node AND j.path >= :first AND j.path < :last
  AND s.status IN ('available', 'scheduled')
ORDER BY j.path
"""


def begin(tx: Transaction, run: RunView, fan: Fan) -> None:
    """Leave a large expand to the process that looks after advancements next."""
    _leave(tx, run, fan.node, fan.path, fan.width, STAGE)


def open_door(tx: Transaction, run: RunView, door: str, path: Path) -> None:
    """Leave those who wait at a door to the process that looks after advancements next."""
    _leave(tx, run, door, path, 0, ADMIT)


def _leave(tx: Transaction, run: RunView, node: str, path: Path, width: int, phase: str) -> None:
    row = {
        "id": new_id(),
        "run_id": run.id,
        "node": node,
        "path": path_text(path),
        "width": width,
        "phase": phase,
        "next_index": 0,
    }
    tx.insert("advancements", [row], created_at="{now}", updated_at="{now}")


def postpone(tx: Transaction, id: str, problem: str, pause: float) -> None:
    """Postpone this expand by this many seconds."""
    tx.stage("put_off")
    tx.run(POSTPONE, id=id, problem=problem, wait=int((pause - PUT_OFF) * 1_000_000))


def first_steps(
    engine_state: EngineState,
    run: RunView,
    fan: Fan,
    value: object,
    start: int = 0,
    stop: int | None = None,
    *,
    queued: bool = True,
) -> list[NewStep]:
    """The first steps inside an expand, each with its element, for a chunk of them."""
    found = raw_elements(value)
    assert isinstance(found, list)
    template = engine_state.template(run.definition, run.wiring.places[fan.entry].node)
    begun = list(elements(run.wiring, fan, start, stop))
    return [
        NewStep(
            id,
            run.id,
            fan.entry,
            one.path,
            template,
            JobStatus.SCHEDULED if one.delay > 0 else JobStatus.AVAILABLE,
            dumps(found[one.path[-1]]),
            delay=one.delay,
            queued=queued,
        )
        for id, one in zip(new_ids(len(begun)), begun, strict=True)
    ]


def to_come(engine_state: EngineState, tx: Transaction, run: str) -> Callable[[str, Path], bool]:
    """Whether the step of a node at a path is an element that is staged, and will get its place with the others."""
    fans = tx.rows(OPEN, run=run)
    found = run_rows.views(engine_state, tx, [run]).get(run) if fans else None
    first: dict[tuple[str, Path], int] = {}
    if found is not None:
        for node, path, phase, index in [fan for fan in fans if fan[2] != ADMIT]:
            first[found.wiring.places[node].entry, path_of(path)] = index if phase == RELEASE else 0
    return lambda node, path: bool(path) and (node, path[:-1]) in first and path[-1] >= first[node, path[:-1]]


class Advancer:
    """Works on large expands, one chunk a turn. The value it expands over is kept from one chunk to the next."""

    def __init__(self, engine_state: EngineState, chunk: int = CHUNK) -> None:
        self.engine_state = engine_state
        self.chunk = chunk
        self.at: str | None = None
        self.run: str | None = None
        """The expand that the last turn was about, and its run."""
        self._value: tuple[str, object] | None = None

    def turn(self, tx: Transaction) -> bool:
        """One chunk of one expand; False if there is none to work on."""
        tx.stage("expand")
        self.at = None
        row = tx.row(NEXT, put_off=int(PUT_OFF * 1_000_000))
        if row is None:
            self._value = None
            return False
        id, run_id, node, path, width, phase, index = row
        self.at, self.run = str(id), str(run_id)
        run = run_rows.views(self.engine_state, tx, [run_id]).get(run_id)
        if run is None:
            tx.run(DONE, id=id)
            return True
        if phase == ADMIT:
            if not self._admit(tx, run, node, path_of(path)):
                tx.run(DONE, id=id)
            return True
        fan = Fan(node, run.wiring.places[node].entry, path_of(path), width)
        stop = min(index + self.chunk, width)
        if phase == STAGE:
            self._stage(tx, id, run, fan, index, stop)
        else:
            self._release(tx, run, fan, index, stop)
        self._move(tx, row, stop)
        return True

    def _admit(self, tx: Transaction, run: RunView, door: str, path: Path) -> bool:
        """Let a chunk of the elements at an open door go on, and write what follows; False: those were the last."""
        waiting = join_rows.waiting_at(tx, run.id, door, path, self.chunk)
        opened = join_rows.fired_among(tx, door, [(run.id, path)]).get((run.id, path))
        if not waiting or opened is None:
            return False
        join_rows.remove(tx, run.id, door, waiting)
        application = advance.Advance(self.engine_state, tx)
        application.runs[run.id] = run
        for at, tally in waiting.items():
            application.admit(run, door, at, tally.plus(opened))
        finish.finish(application)
        return len(waiting) == self.chunk

    def _stage(self, tx: Transaction, id: str, run: RunView, fan: Fan, start: int, stop: int) -> None:
        value = self._elements(tx, id, run, fan)
        step_rows.write(
            self.engine_state, tx, first_steps(self.engine_state, run, fan, value, start, stop, queued=False)
        )

    def _release(self, tx: Transaction, run: RunView, fan: Fan, start: int, stop: int) -> None:
        first, last = path_text((*fan.path, start)), path_text((*fan.path, stop))
        staged = tx.rows(STAGED, run=run.id, node=fan.entry, first=first, last=last)
        delay = run.wiring.places[fan.entry].node.options.delay or 0.0
        rows = [
            {
                "job_id": job,
                "task": task,
                "queue": queue,
                "tier": tier_of(priority),
                "wait": int(delay * 1_000_000),
            }
            for job, task, queue, priority in staged
        ]
        if delay > 0:
            tx.insert("scheduled", rows, due_at="{now} + :wait")
            return
        tx.insert("availabilities", rows)
        made = {str(row["job_id"]): (str(row["queue"]), tier_of(staged[0][3])) for row in rows[:1]}
        self.engine_state.trace(tx).made.update(made)
        self.engine_state.tell_ready(tx)

    def _move(self, tx: Transaction, row: Row, stop: int) -> None:
        id, _run, _node, _path, width, phase, index = row
        if stop < width:
            tx.run(MOVE, id=id, before=phase, at=index, phase=phase, next=stop)
        elif phase == STAGE:
            tx.run(MOVE, id=id, before=phase, at=index, phase=RELEASE, next=0)
            self._value = None
        else:
            tx.run(DONE, id=id)

    def _elements(self, tx: Transaction, id: str, run: RunView, fan: Fan) -> object:
        if self._value is None or self._value[0] != id:
            values = Values()
            fetch(self.engine_state, tx, values, [(run.id, inputs_of(run.wiring, fan.node, fan.path))])
            value = asked_value(run.wiring, fan.node, fan.path, values.of(run))
            self._value = (id, raw_elements(value))
        return self._value[1]
