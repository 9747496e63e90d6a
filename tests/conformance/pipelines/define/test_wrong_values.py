"""pipelines/define/pipeline_options, task_options: Values that make no sense are refused by the package's own
errors, with what to give instead; nothing is written.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import Penstock, Retry, Snooze, first, wait_for
from penstock.errors import PenstockError
from penstock.pipelines.run import Run
from penstock.testing import drain, travel

HUGE = 10**400
SECONDS: tuple[Any, ...] = (math.inf, -math.inf, math.nan, -1, True, 1e300, HUGE, "x", "", [], object())
NO_DELAYS = tuple(value for value in SECONDS if value not in (1e300, HUGE))
"""A caller that wants to try again in a thousand years does so after a hundred."""
COUNTS: tuple[Any, ...] = (math.inf, math.nan, -1, True, 1.5, 10**30, HUGE, "x", [], object())
TEXTS: tuple[Any, ...] = ("", "x" * 5000, 3, True, "\0", "\ud800", [], object(), b"x")
NAMES = iter(f"p{number}" for number in range(10_000))

Case = tuple[str, Callable[[Any], object], tuple[Any, ...]]


def declared(app: Penstock, describe: Callable[[], object], **given: Any) -> Any:
    """The definition of a pipeline with this body."""
    return app.pipeline(**({"name": next(NAMES)} | given))(describe).definition


def of_runs(app: Penstock, run: Run, task: Any, one: Any) -> Iterator[Case]:
    yield "cancel", lambda v: run.cancel(grace=v), (*SECONDS, None)
    yield "run.result", lambda v: run.result(timeout=v), (math.nan, True, "x", [], object())
    yield "job.result", lambda v: app.job(run.steps()[0].id).result(timeout=v), (math.nan, True, "x", [])
    yield "then", run.then, ([], (), [()], [[]], None, 3, "x", [3], [(3,)])
    yield "then, after another", lambda v: run.then(*v), ((), ([(one, 1), (one,)],))
    yield "rerun", lambda v: run.rerun(args=v), (3, "x", b"x", [1, 2, 3], {"nobody": 1})
    yield "signal", run.signal, TEXTS
    yield "signal path", lambda v: run.signal("go", 1, path=v), (3, "x", [-1], [True], [1.5], [[]])
    yield "token expires", lambda v: run.token("go", expires=v), SECONDS
    yield "retry_step", run.retry_step, (*TEXTS, None)
    yield "fork", run.fork, (*TEXTS, None)
    yield "context get", run.context.get, (*TEXTS, None)
    yield "context set", lambda v: run.context.set(v, 1), (*TEXTS, None)
    yield "context increment", run.context.increment, (*TEXTS, None)
    yield "context by", lambda v: run.context.increment("n", v), (math.inf, math.nan, True, None, "x", [])
    yield "context compare", lambda v: run.context.compare_and_set(v, None, 1), (*TEXTS, None)


def of_enqueues(app: Penstock, run: Run, task: Any, one: Any) -> Iterator[Case]:
    for option, values in {
        "delay": SECONDS,
        "timeout": SECONDS,
        "at": (3, "x", math.nan),
        "priority": tuple(value for value in COUNTS if value != -1),
        "retries": COUNTS,
        "max_crashes": COUNTS,
        "key": TEXTS,
        "queue": TEXTS,
        "name": TEXTS,
        "executor": TEXTS,
        "nobody": (1,),
    }.items():
        yield f"task {option}", lambda v, o=option: task.options(**{o: v}).enqueue(1), values  # type: ignore[misc]
        if option in ("delay", "at", "key", "nobody"):
            yield f"run {option}", lambda v, o=option: one.options(**{o: v}).trigger(1), values  # type: ignore[misc]
    yield "labels", lambda v: one.options(labels=v).trigger(1), (*[[text] for text in TEXTS], 3, ["a"] * 99)
    yield "enqueue_many", task.enqueue_many, (3, None, "xy", [3], [()])
    yield "trigger_many", one.trigger_many, (3, None, "xy", [3], [()])
    keys = (3, "x", [None, None], *[[text] for text in TEXTS])
    yield "keys", lambda v: one.trigger_many([(1,)], keys=v), keys
    yield "Retry max", lambda v: Retry(max=v), COUNTS
    yield "Retry delay", lambda v: Retry(delay=v), NO_DELAYS
    yield "Snooze", Snooze, NO_DELAYS


def of_pipelines(app: Penstock, run: Run, task: Any, one: Any) -> Iterator[Case]:
    def waiting(**given: Any) -> object:
        return declared(app, lambda: task(wait_for(given.pop("signal", "go"), after=[task(1)], **given)))

    for option, values in {"delay": SECONDS, "timeout": SECONDS, "retries": COUNTS, "key": TEXTS}.items():
        yield (
            f"step {option}",
            lambda v, o=option: declared(app, lambda: task.options(**{o: v})(1)),  # type: ignore[misc]
            values,
        )
    yield (
        "step fanout",
        lambda v: declared(app, lambda: task.options(max_fanout=v).map([1]).collect()),
        COUNTS,
    )
    yield "first", lambda v: declared(app, lambda: first(task(1), task(2), task(3), count=v)), COUNTS
    yield "wait", lambda v: waiting(signal=v), TEXTS
    yield "wait timeout", lambda v: waiting(timeout=v), SECONDS
    yield "remind_every", lambda v: waiting(remind=task, remind_every=v), SECONDS
    yield "deadline", lambda v: declared(app, lambda: task(1), deadline=v), SECONDS
    for option in ("max_fanout", "max_steps"):
        yield option, lambda v, o=option: declared(app, lambda: task(1), **{o: v}), COUNTS  # type: ignore[misc]
    yield "pipeline name", lambda v: declared(app, lambda: task(1), name=v), TEXTS
    yield "flow name", lambda v: app.flow(v).start(task), (*TEXTS, None)


def of_apps(app: Penstock, run: Run, task: Any, one: Any) -> Iterator[Case]:
    yield "runs limit", lambda v: app.runs(limit=v), (*COUNTS, None)
    yield "dead limit", lambda v: app.dead_letters(limit=v), COUNTS
    yield "audit limit", lambda v: app.audit(limit=v), (*COUNTS, 0, None)
    yield "audit since", lambda v: app.audit(since=v), SECONDS
    yield "audit of", app.audit, TEXTS
    for name in ("pipeline", "key", "label", "status"):
        yield f"runs {name}", lambda v, n=name: app.runs(**{n: v}), TEXTS  # type: ignore[misc]
    for name in ("task", "queue", "reason"):
        yield f"dead {name}", lambda v, n=name: app.dead_letters(**{n: v}), TEXTS  # type: ignore[misc]
    yield "audit by", lambda v: app.audit(by=v), TEXTS
    yield "job", app.job, (*TEXTS, None)
    yield "run", app.run, (*TEXTS, None)
    yield "queues", lambda v: app.worker(queues=v), (3, True, [3], [None], b"x", "\0", "", object())
    yield "drain", lambda v: drain(app, queues=v), (3, [None], "", "\0")
    yield "travel", lambda v: travel(app, v), (math.inf, math.nan, 1e300, HUGE, "x", None)


def rows(app: Penstock) -> list[int]:
    tables = ("jobs", "runs", "timers", "signals", "tuples", "definitions", "audits", "run_labels")
    count = "SELECT COUNT(*) FROM {{{}}}"
    return [app.database.read(lambda tx, t=table: tx.row(count.format(t)))[0] for table in tables]  # type: ignore[misc]


@pytest.mark.parametrize("cases", [of_runs, of_enqueues, of_pipelines, of_apps])
def test_what_makes_no_sense_is_refused_and_nothing_is_written(
    app: Penstock, cases: Callable[..., Iterator[Case]]
) -> None:
    @app.task(name="task")
    def task(value: int) -> int:
        return value

    @app.pipeline(name="one")
    def one(value: int) -> object:
        return task(wait_for("go", after=[task(value)]))

    run = one.trigger(1)
    drain(app)
    before = rows(app)
    wrong = []
    for what, call, values in cases(app, run, task, one):
        for value in values:
            try:
                call(value)
            except PenstockError as error:
                if not str(error):
                    wrong.append(f"{what}: {value!r:.40}: says nothing")
            except Exception as error:
                wrong.append(f"{what}: {value!r:.40}: {type(error).__name__}: {error!s:.80}")
            else:
                wrong.append(f"{what}: {value!r:.40}: was taken")
    assert not wrong, "\n".join(wrong)
    assert rows(app) == before
    assert run.status == "running"
