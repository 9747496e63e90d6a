"""Commands that read: status, jobs, show, explain, processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from penstock.app import Penstock
from penstock.cli.commands.audit import plain, show_acts
from penstock.cli.commands.show_run import show_run
from penstock.cli.exit_codes import UsageError, out
from penstock.cli.options import App, AsJson, DatabaseUrl, opened
from penstock.cli.output import named, say, show_json, show_table, span, tell, when
from penstock.operate import jobs as operate_jobs
from penstock.operate.jobs import JobFilter, JobReport, JobRow
from penstock.operate.overview import Overview, QueueCounts, gauges
from penstock.operate.processes import ProcessRow, obstacles
from penstock.operate.runs import find_run_or_job
from penstock.pipelines.advance.step_rows import NO_PAYLOAD
from penstock.pipelines.model.expressions import path_of
from penstock.values.escape import in_line
from penstock.values.parse import nearest
from penstock.values.plain import counted, instant
from penstock.values.status import JobStatus, Reason


def status(
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
    prometheus: Annotated[bool, typer.Option("--prometheus", help="print metrics for Prometheus")] = False,
) -> None:
    """Show what waits in each queue, and who is at work."""
    with opened(app, database) as found:
        seen = found.status()
        where = found.settings.shown_url
    if as_json or prometheus:
        show_json(seen) if as_json else out.print(gauges(seen), markup=False, end="")
        return
    columns = ["queue", "available #", "limited #", "scheduled #", "running #", "failed #", "oldest waits #"]
    rows = [
        (
            row.queue,
            *(
                _bounded(count, seen)
                for count in (row.available, row.limited, row.scheduled, row.running, row.failed)
            ),
            span(row.lag),
        )
        for row in seen.queues
    ]
    show_table(columns, rows, empty="nothing waits, runs or has failed")
    for row in seen.queues:
        if row.paused_at is not None:
            out.print(f"\n{pause_words(row)}", markup=False)
    newest = ", ".join(f"{count:,} {name}" for name, count in sorted(seen.recent.items())) or "none"
    out.print(f"\n{where}", markup=False)
    out.print(f"processes: {_roles(seen)}", markup=False)
    say(f"the newest {counted(sum(seen.recent.values()), 'job')}: {newest}")


def jobs(
    status: Annotated[str | None, typer.Option(help="only this status, such as failed")] = None,
    queue: Annotated[str | None, typer.Option(help="only this queue")] = None,
    task: Annotated[str | None, typer.Option(help="only this task")] = None,
    label: Annotated[str | None, typer.Option(help="only those with this label")] = None,
    key: Annotated[str | None, typer.Option(help="only the one that has this key")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most this many")] = 50,
    before: Annotated[str | None, typer.Option(metavar="JOB", help="go on below this job")] = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    wanted = JobFilter(_status(status), queue, task, label, key)
    with opened(app, database) as found:
        start = found.database.read(operate_jobs.find_job, before) if before else None
        page = found.database.read(operate_jobs.list_jobs, wanted, limit, start)
    if as_json:
        show_json(page.jobs)
        return
    rows = [
        (job.id, job.task, job.queue, job.status.value, _why(job, more), job.attempt, when(job.created_at))
        for job, more in (_folded(page.jobs) if wanted.status is None else [(job, 0) for job in page.jobs])
    ]
    show_table(
        ["id", "task", "queue", "status", "reason", "attempts #", "created (UTC)"], rows, empty="no jobs"
    )
    if page.before:
        out.print(f"\nmore with: --before {named(page.before)}", markup=False)


def show(
    job: Annotated[str, typer.Argument(metavar="RUN|JOB", help="its id, in short or whole")],
    everything: Annotated[bool, typer.Option("--all", help="of a run: list every step")] = False,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show one run or one job. Of a run: graph, steps, errors. Of a job: who holds it, each attempt and its error."""
    with opened(app, database) as found:
        id, is_run = found.database.read(find_run_or_job, job)
        if is_run:
            show_run(found, id, as_json, everything=everything)
            return
        acts = found.audit(id)
        told = found.database.read(operate_jobs.job_report, id)
        obstacle = _obstacle(found, told)
    if told is None:
        raise UsageError(f"there is no job {job}")
    if as_json:
        show_json(_attempts_named(told) | {"obstacle": obstacle, "audit": [plain(act) for act in acts]})
    else:
        _tell(told, obstacle)
        show_acts(acts)


def explain(
    subject: Annotated[str, typer.Argument(metavar="RUN|JOB", help="its id, or the beginning of it")],
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Say why a job or a run waits; if it does not wait, its state."""
    with opened(app, database) as found:
        told = found.explain(found.database.read(find_run_or_job, subject)[0])
    tell(told.text, told, as_json=as_json)


def pause_words(row: QueueCounts) -> str:
    """A sentence about a paused queue: since when, by whom and why."""
    why = f": {row.pause_why}" if row.pause_why else ""
    return f"queue {row.queue} is paused since {when(row.paused_at)} UTC by {row.paused_by}{why}"


def processes(app: App = None, database: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """List live processes. When each was last heard of, and how many jobs it holds."""
    with opened(app, database) as found:
        rows = found.processes()
        reap_after = found.settings.reap_after
    if as_json:
        show_json(rows)
        return
    columns = ["id", "role", "host", "pid #", "up #", "last heard #", "holds #", "queues"]
    show_table(columns, [_process(row, reap_after) for row in rows], empty="no process is running")


def _process(row: ProcessRow, reap_after: float) -> tuple[object, ...]:
    details = row.details if isinstance(row.details, dict) else {}
    heard = span(row.silence) + (" (silent)" if row.is_silent(reap_after) else "")
    role = f"  {row.role}" if row.supervisor_id else row.role
    return row.id, role, row.host, str(row.pid), span(row.age), heard, row.holding, details.get("queues", "")


def _status(text: str | None) -> JobStatus | None:
    if text is None:
        return None
    try:
        return JobStatus(text)
    except ValueError:
        raise UsageError(f"there is no status {text!r}{nearest(text, list(JobStatus))}") from None


def _folded(found: Sequence[JobRow]) -> list[tuple[JobRow, int]]:
    """The jobs for the list. Of skipped steps of one run that follow each other, only the first is listed, with a
    count."""
    shown: list[tuple[JobRow, int]] = []
    for job in found:
        last = shown[-1][0] if shown else None
        skipped = last is not None and job.status is last.status is JobStatus.SKIPPED
        if skipped and last is not None and job.run_id is not None and job.run_id == last.run_id:
            shown[-1] = (last, shown[-1][1] + 1)
        else:
            shown.append((job, 0))
    return shown


def _why(job: JobRow, more: int) -> str | None:
    if more:
        return f"{job.reason}; and {counted(more, 'more step')} of run {named(str(job.run_id))}"
    return f"waits for {job.waits_for}" if job.waits_for else job.reason


def _bounded(count: int, seen: Overview) -> str:
    return f"{count:,}+" if count >= seen.count_limit else f"{count:,}"


def _roles(seen: Overview) -> str:
    return ", ".join(f"{count} {role}" for role, count in sorted(seen.processes.items())) or "none is running"


def _attempts_named(told: JobReport) -> dict[str, object]:
    names = ("number", "process", "started_at", "finished_at", "outcome", "error_type", "error", "traceback")
    attempts = [dict(zip(names, row, strict=True)) for row in told.attempts]
    return {
        "job": told.job,
        "payload": told.payload,
        "options": told.options,
        "max_crashes": told.max_crashes,
        "due_at": told.due_at,
        "progress": told.progress,
        "output": told.output,
        "line": told.line,
        "attempts": attempts,
    }


def _obstacle(app: Penstock, told: JobReport | None) -> str | None:
    """The reason why no worker takes a job that is ready; None if one would."""
    if told is None or told.job.status is not JobStatus.AVAILABLE or told.job.waits_for:
        return None
    work = [(told.job.task, told.job.queue)]
    return next(iter(app.database.read(obstacles, work, app.settings.reap_after)), None)


def _tell(told: JobReport, obstacle: str | None) -> None:
    for name, value in _lines(told, obstacle):
        out.print(f"{name:<12}{in_line(value)}", markup=False)
    rows = [
        (
            number,
            outcome,
            when(began),
            span((ended - began) / 1e6),
            process,
            f"{kind}: {error}" if kind else "",
        )
        for number, process, began, ended, outcome, kind, error, _ in told.attempts
    ]
    out.print()
    show_table(
        ["attempt #", "outcome", "began (UTC)", "took #", "process", "error"],
        rows,
        empty="no attempt has ended",
    )
    traceback = next((row[7] for row in reversed(told.attempts) if row[7]), None)
    if traceback:
        out.print(f"\n{traceback.rstrip()}", markup=False)


def _lines(told: JobReport, obstacle: str | None) -> list[tuple[str, str]]:
    job = told.job
    lines = [("job", job.id), ("task", job.task), ("queue", f"{job.queue}, priority {job.priority}")]
    reason = f": {Reason.stored(job.reason).explanation}" if job.reason else ""
    lines.append(("status", f"{job.status.value}{reason}"))
    if job.waits_for:
        most, used, before = told.line or ("?", "?", "?")
        lines.append(("waits for", f"{job.waits_for} ({used} of {most} taken; {before} before it)"))
    if obstacle:
        lines.append(("waits for", f"a worker: {obstacle}"))
    if job.run_id:
        at = "".join(f"[{index}]" for index in path_of(job.path or ""))
        lines.append(("run", f"{job.run_id}, step {job.node}{at}"))
    if job.key:
        lines.append(("key", job.key))
    cap = "no cap" if told.max_crashes is None else f"of {told.max_crashes}"
    retries = counted(job.retry_count, "retry", "retries")
    lines.append(("spent", f"{retries}, {counted(job.crash_count, 'crash', 'crashes')} {cap}"))
    lines.append(("created", instant(job.created_at)))
    if told.due_at is not None:
        lines.append(("due", instant(told.due_at)))
    if told.holder:
        host, pid, _, heard, now = told.holder
        lines.append(
            ("held by", f"{job.process_id} on {host}, pid {pid}, heard of {span((now - heard) / 1e6)} ago")
        )
    if told.progress:
        lines.append(("progress", f"{told.progress[0]:.0%} {told.progress[1]}"))
    if not job.run_id:
        lines.append(("arguments", told.payload))
    elif told.payload != NO_PAYLOAD:  # its other values come from the run and the steps before it
        lines.append(("element", told.payload))
    if told.output is not None:
        lines.append(("result", told.output))
    return lines
