"""pipelines/advance: whatever a run is doing when its process dies, it ends as if nothing had happened.

One pipeline with everything in it is run with all points noted; then once for each of a sample of them, killed there.
`test_kill_windows` does the same for each thing that a run does, for all points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from penstock import Penstock, first, switch, wait_for
from penstock.telemetry import fault_points
from penstock.testing import crash_at, drain
from penstock.values.status import RunStatus
from tests.conformance.rows import rows

KILLS = {"sqlite": 40, "postgres": 10, "mariadb": 6}
OURS = ("advance", "hydrate", "expand", "timer", "trigger", "deliver", "signal", "settle")


def everything(app: Penstock) -> Any:
    @app.task(name="numbers")
    def numbers(count: int) -> list[int]:
        return list(range(count))

    @app.task(name="double")
    def double(number: int) -> int:
        return 2 * number

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    @app.task(name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.task(name="broken", retries=0)
    def broken(number: int) -> int:
        raise ValueError("always")

    @app.task(name="heard")
    def heard(run_id: str) -> str:
        return run_id

    @app.pipeline(name="child")
    def child(count: int) -> Any:
        return total(double.map(numbers(count)).collect())

    @app.pipeline(name="everything", on_complete=heard)
    def everything(count: int) -> Any:
        each = numbers(count)
        number = double.map(each)
        added: Any = add(double(number), number)
        summed = total(added.collect())
        chosen = switch(summed, {"60": double}, otherwise=broken)
        broken.options(optional=True)(chosen)
        approved = wait_for("approve", after=[chosen])
        return [total([chosen, child(2)]), first(double(summed), double(chosen)), approved]

    return everything


def go(app: Penstock, pipeline: Any, key: str) -> Any:
    run = pipeline.options(key=key).trigger(5)
    run.signal("approve", "yes")
    drain(app)
    return run


def check(app: Penstock, run: Any, seen: object) -> None:
    assert run.status is RunStatus.SUCCEEDED, seen
    assert run.result(0)[0] == 122, seen
    assert run.result(0)[1] in (120, 240), seen
    assert run.result(0)[2] == "yes", seen
    assert rows(app, "SELECT node, path FROM {joins} WHERE still_open <> 0 OR NOT fired") == [], seen
    executions = rows(app, "SELECT job_id FROM {executions} WHERE outcome = 'succeeded'")
    assert max(Counter(executions).values()) == 1, seen
    told = rows(
        app, "SELECT COUNT(*) FROM {jobs} j WHERE j.task = 'heard' AND j.payload LIKE :run", run=f"%{run.id}%"
    )
    assert told[0][0] == 1, seen
    for table in ("advancements", "claims", "availabilities", "scheduled"):
        assert rows(app, f"SELECT COUNT(*) FROM {{{table}}}")[0][0] == 0, (seen, table)


def test_a_run_survives_a_kill_at_every_point(make_app: Callable[..., Penstock], database_kind: str) -> None:
    app = make_app(inline_fanout=3)
    app.engine.chores.advancer.chunk = 2
    pipeline = everything(app)
    # A few points are passed by the first run of a process only, such as the writing of its definition.
    check(app, go(app, pipeline, "first"), "first")
    reached: list[str] = []
    with fault_points.watching(reached.append):
        check(app, go(app, pipeline, "noted"), "noted")
    visits: Counter[str] = Counter()
    windows = []
    for point in reached:
        visits[point] += 1
        if point.partition(".")[0] in OURS:
            windows.append((point, visits[point]))
    chosen = Random(7).sample(windows, min(KILLS[database_kind], len(windows)))
    for point, visit in chosen:
        key = f"{point}:{visit}"
        with crash_at(point, visit) as crash:
            go(app, pipeline, key)
        assert crash.crashed, key
        check(app, go(app, pipeline, key), key)
