"""Commands about runs: run, runs, pause, resume, revive, then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from penstock.app import Penstock
from penstock.cli.finding import find_attribute, load_module
from penstock.cli.frame import BAD, Refusal, err, out
from penstock.cli.options import App, AsJson, By, DatabaseUrl, Why, acting, opened, steered
from penstock.cli.output import show_json, show_table, span, tell, when
from penstock.cli.producing import read_arguments, trigger_all
from penstock.cli.show_run import failures
from penstock.cli.watch import watch
from penstock.errors import DatabaseUnavailable
from penstock.operate.runs import RunRow, find_run, list_runs
from penstock.operate.takers import obstacles
from penstock.pipelines.definition import Kind
from penstock.pipelines.options import USUAL
from penstock.pipelines.pipeline import Pipeline
from penstock.pipelines.run import Run
from penstock.pipelines.steerable import CURRENT, OWN
from penstock.task import Task
from penstock.values.readers import nearest
from penstock.values.status import RunStatus

MOST_FAILURES = 10
RunId = Annotated[str, typer.Argument(metavar="RUN", help="its id, or the beginning of it")]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ARG]...", help="values as JSON or plain text; name=value by name"),
]


def run(
    target: Annotated[str, typer.Argument(metavar="MODULE:PIPELINE")],
    arguments: Arguments = None,
    wait: Annotated[bool, typer.Option("--wait", help="watch it until it has ended")] = False,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="with --wait: seconds to watch it at most")
    ] = None,
    key: Annotated[str | None, typer.Option(help="idempotency: the same key gives the same run")] = None,
    delay: Annotated[float, typer.Option(help="seconds before it starts")] = 0.0,
    label: Annotated[list[str] | None, typer.Option(help="a label to find it by; may be repeated")] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="a line of JSON per run; - is stdin")
    ] = None,
    by: By = None,
    why: Why = None,
    as_json: AsJson = False,
) -> None:
    """Trigger a pipeline, and watch it with --wait."""
    pipeline = find_pipeline(target)
    args, kwargs = read_arguments(arguments or [])
    given = {"key": key, "delay": delay, "labels": label}
    options: dict[str, Any] = {name: value for name, value in given.items() if value not in (None, [])}
    if timeout is not None and not wait:
        raise Refusal("--timeout says how long to --wait: give both, or none")
    app: Any = pipeline.host
    try:
        if source is not None:
            with acting(by, why):
                _run_all(
                    pipeline.options(**options), source, bool(wait or key is not None or arguments), as_json
                )
            return
        with acting(by, why):
            started = pipeline.options(**options).trigger(*args, **kwargs)
        status = _watched(app, started, pipeline, timeout, as_json) if wait else started.status
        _tell(started, status, wait, as_json)
    finally:
        app.close()
    if wait and status is not RunStatus.SUCCEEDED:
        raise typer.Exit(BAD)


def _run_all(pipeline: Pipeline, source: str, more: bool, as_json: bool) -> None:
    if more:
        raise Refusal("--from has the arguments of many runs: give no others, no --key and no --wait")
    ids = trigger_all(pipeline, source)
    tell(f"triggered {len(ids):,} runs", ids, as_json=as_json)


def runs(
    pipeline: Annotated[str | None, typer.Option(help="only this pipeline")] = None,
    status: Annotated[str | None, typer.Option(help="only this status, such as halted")] = None,
    key: Annotated[str | None, typer.Option(help="only this key")] = None,
    label: Annotated[str | None, typer.Option(help="only those with this label")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most so many")] = 50,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    if status is not None and status not in list(RunStatus):
        raise Refusal(f"there is no status {status!r}{nearest(status, list(RunStatus))}")
    with opened(app, database) as found:
        rows = found.database.read(list_runs, pipeline, status, key, limit, label)
    if as_json:
        show_json(rows)
        return
    columns = ["id", "pipeline", "status", "reasons", "key", "created (UTC)", "took #"]
    show_table(columns, [_row(row) for row in rows], empty="no runs")


def pause(
    run: RunId,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Pause a run. No further step starts until it is resumed; what runs goes on."""
    with steered(app, database, by, why) as found:
        _steer(found, run, as_json, lambda steered: steered.pause(), "paused", "was paused already")


def resume(
    run: RunId,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Let a paused run go on."""
    with steered(app, database, by, why) as found:
        _steer(found, run, as_json, lambda steered: steered.resume(), "goes on", "was not paused")


def revive(
    run: RunId,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARG]...", help="other arguments for what is still to be done"),
    ] = None,
    context: Annotated[bool, typer.Option("--context", help="copy the run's context too")] = False,
    step: Annotated[str | None, typer.Option(help="of all that failed, redo this step only")] = None,
    current: Annotated[
        bool, typer.Option("--current", help="with the app's definition of now; what is unchanged is kept")
    ] = False,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a halted or failed run. A new run keeps what is finished, and does the rest again."""
    with steered(app, database, by, why) as found:
        old = the_run(found, run)
        if step and arguments:
            raise Refusal("--step does one step again with the arguments it had: give either, not both")
        if step and current:
            raise Refusal("--step does one step again as it was: give either --step or --current")
        which = CURRENT if current else OWN
        new = old.retry_step(step, context) if step else old.revive(context, new_arguments(arguments), which)
        told = f"{old.id} goes on as {new.id}"
        tell(told, {"run": new.id, "revived_from": old.id}, as_json=as_json)


def then(
    run: RunId,
    target: Annotated[str, typer.Argument(metavar="MODULE:PIPELINE")],
    arguments: Arguments = None,
    by: By = None,
    why: Why = None,
    as_json: AsJson = False,
) -> None:
    """Start a pipeline when a run has succeeded. It is skipped if that run does not succeed."""
    pipeline = find_pipeline(target)
    args, kwargs = read_arguments(arguments or [])
    app: Any = pipeline.host
    try:
        first = the_run(app, run)
        with acting(by, why):
            following = first.then(pipeline, *args, **kwargs)
        told = f"{following.id} follows {first.id}"
        if following.status is RunStatus.SKIPPED:
            told += f", which is {first.status.value}, and is skipped. Revive that, and name the new run."
        tell(told, {"run": following.id, "follows": first.id}, as_json=as_json)
    finally:
        app.close()


def find_pipeline(target: str) -> Pipeline:
    """The pipeline, or the task as one, at `module:attribute`."""
    name, _, path = target.partition(":")
    if not name or not path:
        raise Refusal(f"{target!r} is not of the form module:pipeline, such as shop:enrich_users")
    found = find_attribute(load_module(name), path)
    if isinstance(found, Task):
        host: Any = found.host
        return host.as_pipeline(found)  # type: ignore[no-any-return]
    if not isinstance(found, Pipeline):
        raise Refusal(f"{target} is neither a pipeline nor a task but of type {type(found).__name__}")
    return found


def the_run(app: Penstock, prefix: str) -> Run:
    """The run whose id begins so."""
    return app.run(app.database.read(find_run, prefix))


def new_arguments(given: list[str] | None) -> list[Any] | dict[str, Any] | None:
    args, kwargs = read_arguments(given or [])
    if args and kwargs:
        raise Refusal("give all arguments by position, or all as name=value")
    return args or kwargs or None


def _watched(app: Penstock, run: Run, pipeline: Pipeline, timeout: float | None, as_json: bool) -> RunStatus:
    """The status when it has ended, or nobody wants to wait any longer. It goes on without us."""
    try:
        for obstacle in app.database.read(obstacles, _work(pipeline), app.settings.reap_after):
            err.print(f"{obstacle}; the run waits for one: penstock worker MODULE:APP", markup=False)
        return watch(run, timeout, silently=as_json)
    except (KeyboardInterrupt, DatabaseUnavailable):
        err.print(
            f"the run goes on: penstock show {run.id}\nto stop it: penstock cancel {run.id}", markup=False
        )
        raise


def _work(pipeline: Pipeline) -> list[tuple[str, str]]:
    """The tasks of its steps, and the queue of each."""
    tasks = [node for node in pipeline.definition.nodes if node.kind is Kind.TASK]
    return [(node.target, str(node.options.job.get("queue", USUAL.queue))) for node in tasks]


def _steer(
    app: Penstock, prefix: str, as_json: bool, action: Callable[[Run], bool], word: str, otherwise: str
) -> None:
    run = the_run(app, prefix)
    done = action(run)
    tell(f"{run.id} {word if done else otherwise}", {run.id: done}, as_json=as_json)


def _tell(run: Run, status: RunStatus, wait: bool, as_json: bool) -> None:
    ended_well = wait and status is RunStatus.SUCCEEDED
    result = run.result(1) if ended_well else None
    reasons = [reason.value for reason in run.reasons]
    if as_json:
        told = {"id": run.id, "run": run.id, "status": status.value, "result": result, "reasons": reasons}
        show_json(told)
    elif not wait:
        out.print(run.id, markup=False)
    elif ended_well:
        out.print(f"{run.id} succeeded: {result}", markup=False)
    else:
        why = f": {', '.join(reasons)}" if reasons else "" if status.terminal else " still; it goes on"
        out.print(f"{run.id} {status.value}{why}", markup=False)
        for line in failures(run)[:MOST_FAILURES]:
            out.print(f"  {line}", markup=False)
        out.print(f"see: penstock show {run.id}", markup=False)


def _row(row: RunRow) -> tuple[object, ...]:
    took = span((row.ended_at - row.started_at) / 1e6) if row.ended_at and row.started_at else ""
    return row.id, row.pipeline, row.status, ", ".join(row.reasons), row.key, when(row.created_at), took
