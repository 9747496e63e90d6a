"""Commands about runs: run, runs, pause, resume, revive, fork, then."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

import typer

from penstock.app import Penstock
from penstock.cli.commands.enqueue import read_arguments, trigger_all
from penstock.cli.commands.show_run import failures
from penstock.cli.commands.watch import watch_run
from penstock.cli.exit_codes import BAD, UsageError, err, out
from penstock.cli.load_app import find_attribute, load_module, others_in
from penstock.cli.options import App, AsJson, By, DatabaseUrl, Why, acting, acting_on, opened
from penstock.cli.output import named, show_json, show_table, span, tell, when
from penstock.errors import CancelConflict, DatabaseUnavailable
from penstock.operate import actions
from penstock.operate.jobs import job_report
from penstock.operate.processes import obstacles
from penstock.operate.runs import RunRow, find_run, find_run_or_job, list_runs
from penstock.pipelines.define.step_options import USUAL
from penstock.pipelines.model.definition import NodeKind
from penstock.pipelines.pipeline import Pipeline
from penstock.pipelines.run import Run
from penstock.pipelines.run_control import CURRENT, OWN
from penstock.task import Task
from penstock.values.parse import nearest
from penstock.values.plain import counted
from penstock.values.status import RunStatus

MOST_FAILURES = 10
RunId = Annotated[str, typer.Argument(metavar="RUN", help="its id, in short or whole")]
Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:PIPELINE", help="such as shop:enrich_users; or a task, for a run of that one step"
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ARG]...", help="values as JSON or plain text; name=value by name"),
]


def run(
    target: Target,
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
    """Trigger a pipeline, or a task as one, and watch it with --wait."""
    pipeline = find_pipeline(target)
    args, kwargs = read_arguments(arguments or [])
    given = {"key": key, "delay": delay, "labels": label}
    options: dict[str, Any] = {name: value for name, value in given.items() if value not in (None, [])}
    if timeout is not None and not wait:
        raise UsageError("--timeout says how long to --wait: give both, or none")
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
        _tell(app, started, status, wait, as_json)
    finally:
        app.close()
    if wait and status is not RunStatus.SUCCEEDED:
        raise typer.Exit(BAD)


def _run_all(pipeline: Pipeline, source: str, more: bool, as_json: bool) -> None:
    if more:
        raise UsageError("--from has the arguments of many runs: give no others, no --key and no --wait")
    ids = trigger_all(pipeline, source)
    tell(f"triggered {counted(len(ids), 'run')}", ids, as_json=as_json)


def runs(
    pipeline: Annotated[str | None, typer.Option(help="only this pipeline")] = None,
    status: Annotated[str | None, typer.Option(help="only this status, such as halted")] = None,
    key: Annotated[str | None, typer.Option(help="only this key")] = None,
    label: Annotated[str | None, typer.Option(help="only those with this label")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most this many")] = 50,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    if status is not None and status not in list(RunStatus):
        raise UsageError(f"there is no status {status!r}{nearest(status, list(RunStatus))}")
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
    with acting_on(app, database, by, why) as found:
        _steer(found, run, as_json, lambda acting_on: acting_on.pause(), "paused", "was paused already")


def resume(
    run: RunId,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Let a paused run go on."""
    with acting_on(app, database, by, why) as found:
        _steer(found, run, as_json, lambda acting_on: acting_on.resume(), "goes on", "was not paused")


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
    with acting_on(app, database, by, why) as found:
        old = the_run(found, run)
        if step and arguments:
            raise UsageError("--step does one step again with the arguments it had: give either, not both")
        if step and current:
            raise UsageError("--step does one step again as it was: give either --step or --current")
        which = CURRENT if current else OWN
        new = old.retry_step(step, context) if step else old.revive(context, new_arguments(arguments), which)
        told = f"{old.id} goes on as {new.id}"
        tell(told, {"run": new.id, "revived_from": old.id}, as_json=as_json)


def fork(
    run: RunId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="the step from which all is done again")],
    context: Annotated[bool, typer.Option(help="copy the run's context too")] = True,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Fork a run at a step. A new run keeps what came before, and does the step and what depends on it again."""
    with acting_on(app, database, by, why) as found:
        old = the_run(found, run)
        new = old.fork(step, context)
        told = f"{old.id} is forked at {step} as {new.id}"
        tell(told, {"run": new.id, "forked_from": old.id, "step": step}, as_json=as_json)


def then(
    run: RunId,
    target: Target,
    arguments: Arguments = None,
    by: By = None,
    why: Why = None,
    as_json: AsJson = False,
) -> None:
    """Start a pipeline, or a task as one, when a run has succeeded. It is skipped if that run does not succeed."""
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
        raise UsageError(f"{target!r} is not of the form module:pipeline, such as shop:enrich_users")
    home = load_module(name)
    found = find_attribute(home, path)
    if isinstance(found, Task):
        host: Any = found.host
        return host.as_pipeline(found)  # type: ignore[no-any-return]
    if not isinstance(found, Pipeline):
        others = others_in(home, (Pipeline, Task), path, "pipelines and tasks")
        raise UsageError(
            f"{target} is neither a pipeline nor a task but of type {type(found).__name__}{others}"
        )
    return found


def the_run(app: Penstock, prefix: str) -> Run:
    """The run whose id begins as given."""
    return app.run(app.database.read(find_run, prefix))


def new_arguments(given: list[str] | None) -> list[Any] | dict[str, Any] | None:
    args, kwargs = read_arguments(given or [])
    if args and kwargs:
        raise UsageError("give all arguments by position, or all as name=value")
    return args or kwargs or None


def _watched(app: Penstock, run: Run, pipeline: Pipeline, timeout: float | None, as_json: bool) -> RunStatus:
    """Watch a run until it has ended or the timeout is over; returns its status. The run does not depend on the
    watch."""
    err.print(f"run {run.id}", markup=False)
    try:
        for obstacle in app.database.read(obstacles, _work(pipeline), app.settings.reap_after):
            err.print(f"{obstacle}; the run waits for one: penstock worker MODULE:APP", markup=False)
        return watch_run(app, run, timeout, silently=as_json)
    except (KeyboardInterrupt, DatabaseUnavailable):
        err.print(
            f"the run goes on: penstock watch {named(run.id)}\nto stop it: penstock cancel {named(run.id)}",
            markup=False,
        )
        raise


def _work(pipeline: Pipeline) -> list[tuple[str, str]]:
    """The tasks of the run's steps, with the queue of each."""
    tasks = [node for node in pipeline.definition.nodes if node.kind is NodeKind.TASK]
    return [(node.target, str(node.options.job.get("queue", USUAL.queue))) for node in tasks]


def _steer(
    app: Penstock, prefix: str, as_json: bool, action: Callable[[Run], bool], word: str, otherwise: str
) -> None:
    run = the_run(app, prefix)
    done = action(run)
    tell(f"{run.id} {word if done else otherwise}", {run.id: done}, as_json=as_json)


def _tell(app: Penstock, run: Run, status: RunStatus, wait: bool, as_json: bool) -> None:
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
        for line in failures(app, run)[:MOST_FAILURES]:
            out.print(f"  {line}", markup=False)
        out.print(f"see: penstock show {named(run.id)}", markup=False)


def _row(row: RunRow) -> tuple[object, ...]:
    took = span((row.ended_at - row.started_at) / 1e6) if row.ended_at and row.started_at else ""
    return row.id, row.pipeline, row.status, ", ".join(row.reasons), row.key, when(row.created_at), took


# Commands that act on jobs and on runs: cancel, retry.

ID = re.compile(r"[0-9a-fA-F-]+")
SHORT = re.compile(r"[0-9a-fA-F-]+(\.\.|…)[0-9a-fA-F]+")
WHOLE_ID = 32
Jobs = Annotated[list[str], typer.Argument(metavar="ID...", help="ids, in short or whole")]


def cancel(
    jobs: Jobs,
    grace: Annotated[
        float, typer.Option(min=0, help="of a run: seconds before what still runs is given up")
    ] = 10.0,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Cancel runs and jobs. At once where they wait; where they run, the handler is told."""
    with acting_on(app, database, by, why) as found:
        named = _find(found, jobs)
        done = {id for id, is_run in named if is_run and _cancel_run(found.run(id), grace)}
        done |= set(actions.cancel(found, [id for id, is_run in named if not is_run]))
    _answer([id for id, _ in named], done, "cancelled", "was over already", as_json)


def retry(
    jobs: Jobs,
    step: Annotated[str | None, typer.Option(help="of a run: the failed step to do again")] = None,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Run failed or cancelled jobs again. They get fresh budgets. With --step KEY or KEY, a failed step of a run."""
    with acting_on(app, database, by, why) as found:
        if step is None and len(jobs) == 2 and _is_step(found, *jobs):
            jobs, step = jobs[:1], jobs[1]
        named = _find(found, jobs)
        if step is not None:
            _retry_step(found, named, step, as_json)
            return
        for id, is_run in named:
            if is_run:
                raise UsageError(f"{id} is a run: penstock revive {id}, or penstock retry {id} --step KEY")
            _refuse_step(found, id)
        done = set(actions.retry(found, [id for id, _ in named]))
    _answer([id for id, _ in named], done, "will run again", "is neither failed nor cancelled", as_json)


def _is_step(app: Penstock, first: str, second: str) -> bool:
    """True if `second` is the key of a step: after a run even one that could begin an id, such as "add" or "bad"."""
    if not ID.fullmatch(second):
        return not SHORT.fullmatch(second)
    return len(second) < WHOLE_ID and app.database.read(find_run_or_job, first)[1]


def _find(app: Penstock, prefixes: list[str]) -> list[tuple[str, bool]]:
    return [app.database.read(find_run_or_job, prefix) for prefix in prefixes]


def _cancel_run(run: Run, grace: float) -> bool:
    try:
        run.cancel(grace)
    except CancelConflict:
        return False
    return True


def _retry_step(app: Penstock, named: list[tuple[str, bool]], step: str, as_json: bool) -> None:
    for id, is_run in named:
        if not is_run:
            raise UsageError(f"{id} is a job, not a run: --step names a step of a run")
    revived = {id: app.run(id).retry_step(step).id for id, _ in named}
    if as_json:
        show_json(revived)
    for old, new in revived.items() if not as_json else ():
        out.print(f"{old} goes on as {new}", markup=False)


def _refuse_step(app: Penstock, id: str) -> None:
    told = app.database.read(job_report, id)
    if told is not None and told.job.run_id is not None:
        run, step = told.job.run_id, told.job.node
        raise UsageError(f"{id} is a step of run {run}, which went on: penstock retry {run} --step {step}")


def _answer(ids: list[str], done: set[str], word: str, otherwise: str, as_json: bool) -> None:
    if as_json:
        show_json({id: id in done for id in ids})
    else:
        for id in ids:
            out.print(f"{id} {word if id in done else otherwise}", markup=False)
    if len(done) < len(set(ids)):
        raise typer.Exit(BAD)
