"""Runs for kill tests: tasks that every process of `scenes` knows, and pipelines whose steps are in one queue.

What is told of a run's end, and the run that follows it, are for the queue LATER: a worker that is to be killed in the
first queue leaves them alone.
"""

import asyncio
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import penstock
from penstock import Penstock, wait_for
from penstock.database import boundary
from penstock.database.listeners import NoListener
from penstock.pipelines.advance import advance, state
from penstock.pipelines.pipeline import Pipeline
from penstock.runtime import worker
from tests.waiting import until

LATER = "later"
SUM = 2 * (2 + 3)
"""What `everything` comes to when it is given 1."""
UNENDED = """
SELECT count(*) FROM {runs} WHERE ended_at IS NULL
  AND (:all = 1 OR pipeline LIKE :of OR (pipeline = :sequel AND started_at IS NULL))
"""
ELEMENT_ENDED = """
SELECT 1 FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND j.task = 'in_turn' AND s.finished_at IS NOT NULL
"""


def declare(app: Penstock, note: Callable[[], None], one_by_one: bool) -> None:
    """`one_by_one`: elements are settled one after the other, never together."""

    @app.task(name="pair", retries=0)
    async def pair(number: int) -> list[int]:
        note()
        return [number, number + 1]

    @app.task(name="in_turn", retries=0)
    async def in_turn(number: int) -> int:
        """The odd element waits until the even one has ended."""
        note()
        run = str(penstock.current().run_id)
        if one_by_one and number % 2:
            await until(lambda: _one_has_ended(app, run))
        return 2 * number

    @app.task(name="total", retries=0)
    async def total(numbers: list[int]) -> int:
        note()
        return sum(numbers)

    @app.task(name="fails", retries=0)
    async def fails(number: int) -> int:
        note()
        raise ValueError(number)

    @app.task(name="pauses", retries=0)
    async def pauses(number: int) -> int:
        """A worker that presumes that its run goes on will be wrong."""
        note()
        await asyncio.to_thread(app.run(str(penstock.current().run_id)).pause)
        return number

    @app.task(name="hear", retries=0)
    async def hear(run_id: str, status: str) -> str:
        note()
        return f"{run_id} {status}"


def everything(app: Penstock, queue: str) -> Pipeline:
    """A chained step, a fan-out, a join, an end that two callbacks hear of."""
    names = ("double_async", "pair", "in_turn", "total")
    double, pair, in_turn, total = [app.tasks[name].options(queue=queue) for name in names]

    @app.pipeline(name=f"everything-{queue}", **_callbacks(app, "on_complete", "on_success"))
    def everything(number: int) -> Any:
        return total(in_turn.map(pair(double(number))).collect())

    return everything


def refused(app: Penstock, queue: str) -> Pipeline:
    """The worker that settles its step presumes wrongly."""
    return app.flow(f"refused-{queue}").start(app.tasks["pauses"].options(queue=queue))


def sequence(app: Penstock, queue: str) -> Pipeline:
    double = app.tasks["double_async"].options(queue=queue)

    @app.pipeline(name=f"sequence-{queue}", **_callbacks(app, "on_complete", "on_success"))
    def sequence(number: int) -> Any:
        return double(double(number))

    return sequence


def joined(app: Penstock, queue: str) -> Pipeline:
    double, total = (app.tasks[name].options(queue=queue) for name in ("double_async", "total"))

    @app.pipeline(name=f"joined-{queue}", **_callbacks(app, "on_complete", "on_success"))
    def joined(number: int) -> Any:
        return total([double(number), double(number)])

    return joined


def halting(app: Penstock, queue: str) -> Pipeline:
    """One step fails; another, which waits for something that never comes, is swept away."""
    fails, double = (app.tasks[name].options(queue=queue) for name in ("fails", "double_async"))

    @app.pipeline(name=f"halting-{queue}", **_callbacks(app, "on_complete", "on_success", "on_halt"))
    def halting(number: int) -> Any:
        return [double(fails(number)), wait_for("never")]

    return halting


def delayed(app: Penstock, queue: str) -> Pipeline:
    """Begun by a timer."""
    return sequence(app, queue).options(delay=0.001)


def waiting(app: Penstock, queue: str) -> Pipeline:
    """Goes on by a timer; the wait is still there when the run is given up."""
    double = app.tasks["double_async"].options(queue=queue)

    @app.pipeline(name=f"waiting-{queue}", **_callbacks(app, "on_complete", "on_success"))
    def waiting(number: int) -> Any:
        return double(double(wait_for("go", timeout=0.001, default=1)))

    return waiting


def one_at_a_time(app: Penstock, queue: str) -> Pipeline:
    """Of its runs one is under way."""
    return app.flow(f"line-{queue}", max_running=1).start(app.tasks["double_async"].options(queue=queue))


def sequel(app: Penstock, queue: str) -> Pipeline:
    return app.flow(f"{queue}-sequel").start(app.tasks["double"].options(queue=LATER))


def unended(app: Penstock, queue: str = "") -> int:
    """Runs that have not ended, and sequels that have not begun: those of one queue; or all that have not ended."""
    row = app.database.read(
        lambda tx: tx.row(UNENDED, of=f"%-{queue}", sequel=f"{queue}-sequel", all=int(not queue))
    )
    return int(row[0]) if row else 0


def _one_has_ended(app: Penstock, run: str) -> bool:
    """One element's step has ended."""
    return app.database.read(lambda tx: tx.row(ELEMENT_ENDED, run=run)) is not None


def _callbacks(app: Penstock, *events: str) -> dict[str, Any]:
    return dict.fromkeys(events, app.tasks["hear"].options(queue=LATER))


# What is done to a process


PATIENCE = ((worker, "SHORTEST_POLL", 60.0), (worker, "listener_for", lambda *_: NoListener()))


def hold_at_once() -> None:
    """However slow the machine is, the next step is held without another look at the queue: no wake-up tells of
    more."""
    _set(PATIENCE)


def refuse(*_: object) -> Any:
    raise LookupError("nobody has thought of this")


ILLNESS = (
    (advance, "begin", refuse),
    (advance, "advance", refuse),
    (state, "MOST_TRIES", 1),
    (boundary, "FIRST_PAUSE", 0.0),
)
"""Nothing can be planned; and a run that cannot be planned is given up at once, which would take minutes."""


def fall_ill() -> None:
    _set(ILLNESS)


def _set(values: Sequence[tuple[ModuleType, str, object]]) -> None:
    for module, name, value in values:
        setattr(module, name, value)
