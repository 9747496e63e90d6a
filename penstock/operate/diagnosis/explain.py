"""Explains why a job or a run waits: each cause as a word for programs and a sentence for people.

Only narrow tables are read, and nothing that is finished is walked over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.errors import PenstockError
from penstock.job import instant
from penstock.operate import jobs, runs
from penstock.operate.jobs import JobReport
from penstock.operate.processes import SUPERVISOR, living, obstacles
from penstock.pipelines.advance import read, timers
from penstock.pipelines.advance.read import RunStatusRow
from penstock.pipelines.lifecycle import run_line
from penstock.pipelines.model.definition import END, Definition, NodeKind
from penstock.pipelines.model.expressions import path_of
from penstock.queue.limits.slots import NEVER
from penstock.queue.rules import queue_controls
from penstock.values.status import JobStatus, Reason, RunStatus

NOW = "SELECT {now}"
TIMER = "SELECT MIN(due_at) FROM {timers} WHERE run_id = :run AND kind = :kind"
JOB_TIMER = "SELECT MIN(due_at) FROM {timers} WHERE run_id = :run AND kind = :kind AND job_id = :job"
UPSTREAM = """
SELECT r.id, r.pipeline, r.status FROM {chains} c JOIN {runs} r ON r.id = c.upstream_id
WHERE c.downstream_id = :run AND r.ended_at IS NULL ORDER BY r.id LIMIT :limit
"""
PAUSED = "SELECT paused_at FROM {runs} WHERE id = :run"
CHILD = "SELECT id, pipeline, status FROM {runs} WHERE parent_job_id = :job AND parent_run_id = :run ORDER BY id DESC"
OPEN_STEPS = """
SELECT j.id, j.node, j.path FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND s.status IN ('waiting', 'scheduled', 'available', 'running') ORDER BY j.id LIMIT :limit
"""
JOINS = """
SELECT node, path, still_open FROM {joins}
WHERE run_id = :run AND still_open > 0 AND NOT fired AND node <> :end
ORDER BY node, path LIMIT :limit
"""
EXPANDS = "SELECT COUNT(*) FROM {advancements} WHERE run_id = :run"
FOLLOWED = """
SELECT f.job_id, s.status FROM {job_followers} f JOIN {job_states} s ON s.job_id = f.job_id WHERE f.id = :id
"""
HOLDERS = f"""
SELECT s.job_id FROM {{slots}} s JOIN {{job_states}} j ON j.job_id = s.job_id AND j.token = s.token
WHERE s.limit_key = :key AND s.until = {NEVER} ORDER BY s.job_id LIMIT :limit
"""
MOST = 10
"""At most so many steps, holders and runs are named."""
BRIEF = 8


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause: `kind` is a fixed word, `text` a sentence, `detail` the values in it."""

    kind: str
    text: str
    detail: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job or a run waits. If it does not wait: its status."""

    id: str
    subject: str
    """`job` or `run`."""
    status: str
    causes: tuple[Cause, ...]

    @property
    def text(self) -> str:
        lines = [f"{self.subject} {self.id} is {self.status}"]
        return "\n".join([*lines, *[f"- {cause.text}" for cause in self.causes]])

    def __str__(self) -> str:
        return self.text


def explain(tx: Transaction, id: str, reap_after: float) -> Explanation:
    """Explain a run or a job by its id."""
    run = read.run_states(tx, [id]).get(id)
    if run is not None:
        return Explanation(id, "run", run.status.value, tuple(_of_run(tx, run, reap_after)))
    report = jobs.job_report(tx, id)
    if report is None:
        raise PenstockError(f"there is no job and no run {id}; it may have been pruned")
    return Explanation(id, "job", report.job.status.value, tuple(_of_job(tx, report, reap_after)))


# A job


def _of_job(tx: Transaction, report: JobReport, reap_after: float) -> Iterator[Cause]:
    match report.job.status:
        case JobStatus.SCHEDULED:
            yield from _not_due(tx, report)
            yield from _queue_paused(tx, report.job.queue)
        case JobStatus.AVAILABLE:
            yield from _ready(tx, report, reap_after)
        case JobStatus.RUNNING:
            yield _running(report)
        case JobStatus.WAITING if report.job.run_id is None:
            yield from _following(tx, report)
        case JobStatus.WAITING:
            yield from _waiting_step(tx, report)
        case _:
            yield _ended(report)
    if report.job.run_id is not None and not report.job.status.terminal:
        yield from _paused_run(tx, report.job.run_id)


def _not_due(tx: Transaction, report: JobReport) -> Iterator[Cause]:
    due = report.due_at
    detail: dict[str, object] = {"due_at": None if due is None else instant(due), **_spent(report)}
    when = "" if due is None else f" until {_when(due)}{_from_now(tx, due)}"
    failed = next((row for row in reversed(report.attempts) if row[4] in ("errored", "timed_out")), None)
    last = report.attempts[-1] if report.attempts else None
    if last is not None and last is failed:
        error = f"{last[5]}: {last[6]}" if last[5] else "an error"
        text = f"waits{when} before its next try, after attempt {last[0]} failed with {error}"
        yield Cause("backing_off", text, detail | {"error": error, "attempt": last[0]})
    elif last is not None and last[4] == "crashed":
        text = f"waits{when} before its next try: the process that ran attempt {last[0]} died"
        yield Cause("backing_off", text, detail | {"attempt": last[0]})
    elif last is not None and last[4] == "snoozed":
        yield Cause("snoozed", f"its handler asked to be run again later: not{when}", detail)
    else:
        yield Cause("not_due", f"is not due{when}", detail)


def _ready(tx: Transaction, report: JobReport, reap_after: float) -> Iterator[Cause]:
    job = report.job
    if job.waits_for:
        yield _limit(tx, report)
        return
    paused = list(_queue_paused(tx, job.queue))
    yield from paused
    hindered = obstacles(tx, [(job.task, job.queue)], reap_after)
    for words in hindered:
        yield Cause("no_worker", words, {"task": job.task, "queue": job.queue})
    if not paused and not hindered:
        text = f"waits for a free place in a worker of queue {job.queue!r}"
        yield Cause("ready", text, {"queue": job.queue})


def _limit(tx: Transaction, report: JobReport) -> Cause:
    most, used, before = report.line or ("?", "?", "?")
    key = str(report.job.waits_for)
    holders = [str(id) for (id,) in tx.rows(HOLDERS, key=key, limit=MOST)]
    held = f"; held by {', '.join(holders)}" if holders else ""
    text = f"the limit {key!r} is full: {used} of {most} taken, jobs before it: {before}{held}"
    return Cause(
        "limit_full", text, {"limit": key, "most": most, "used": used, "before": before, "holders": holders}
    )


def _running(report: JobReport) -> Cause:
    job = report.job
    detail: dict[str, object] = {"process": job.process_id, "attempt": job.attempt, **_spent(report)}
    if report.holder is None:
        return Cause("running", f"is held by process {job.process_id}, which has no row", detail)
    host, pid, _role, heard, now = report.holder
    detail |= {"host": host, "pid": pid, "heard_ago": (now - heard) / 1e6}
    since = f" since {_when(job.claimed_at)}" if job.claimed_at else ""
    text = (
        f"runs on {host}, pid {pid}{since} (attempt {job.attempt}); heard of {detail['heard_ago']:.0f} s ago"
    )
    return Cause("running", text, detail)


def _ended(report: JobReport) -> Cause:
    job = report.job
    why = f": {Reason.stored(job.reason).explanation}" if job.reason else ""
    error = next((f"{row[5]}: {row[6]}" for row in reversed(report.attempts) if row[5]), None)
    told = f" ({error})" if error and job.status is JobStatus.FAILED else ""
    when = f" at {_when(job.finished_at)}" if job.finished_at else ""
    return Cause("ended", f"ended{when}{why}{told}", {"reason": job.reason, "error": error})


def _spent(report: JobReport) -> dict[str, object]:
    return {"retry_count": report.job.retry_count, "crash_count": report.job.crash_count}


def _queue_paused(tx: Transaction, queue: str) -> Iterator[Cause]:
    for pause in queue_controls.listed(tx):
        if pause.name == queue:
            why = f": {pause.why}" if pause.why else ""
            text = f"queue {queue!r} is paused since {_when(pause.changed_at)} by {pause.changed_by}{why}"
            yield Cause(
                "queue_paused",
                text,
                {
                    "queue": queue,
                    "since": instant(pause.changed_at),
                    "by": pause.changed_by,
                    "why": pause.why,
                },
            )


def _following(tx: Transaction, report: JobReport) -> Iterator[Cause]:
    for id, status in tx.rows(FOLLOWED, id=report.job.id):
        text = f"waits until job {id} has succeeded, which is {status}"
        yield Cause("waits_for_job", text, {"job": str(id), "status": status})


# A step that waits without a worker


def _waiting_step(tx: Transaction, report: JobReport) -> Iterator[Cause]:
    job = report.job
    run, node = str(job.run_id), str(job.node)
    children = tx.rows(CHILD, job=job.id, run=run)
    if children:
        id, pipeline, status = children[0]
        yield Cause(
            "child_run", f"waits for its child run {id} of {pipeline}, which is {status}", {"run": str(id)}
        )
        return
    signal = _signal_of(tx, run, node)
    if signal is None:
        yield Cause("waits", "is put aside until its run goes on", {"run": run})
        return
    row = tx.row(JOB_TIMER, run=run, kind=timers.WAIT, job=job.id)
    until = int(row[0]) if row and row[0] is not None else None
    more = "" if until is None else f", until {_when(until)}{_from_now(tx, until)}"
    at = "".join(f" --path {index}" for index in path_of(job.path or ""))
    text = (
        f"waits for signal {signal!r} since {_when(job.created_at)}{more}: penstock signal {run} {signal}{at}"
    )
    detail: dict[str, object] = {"signal": signal, "until": None if until is None else instant(until)}
    yield Cause("waits_for_signal", text, detail)


def _signal_of(tx: Transaction, run: str, node: str) -> str | None:
    row = tx.row(runs.DEFINITION, id=run)
    found = Definition.from_text(str(row[0])).by_key.get(node) if row is not None else None
    return found.target if found is not None and found.kind is NodeKind.WAIT else None


# A run


def _of_run(tx: Transaction, run: RunStatusRow, reap_after: float) -> Iterator[Cause]:
    if run.status.terminal:
        reasons = [Reason.stored(reason) for reason in run.reasons]
        why = "".join(f"; {reason.value}: {reason.explanation}" for reason in reasons)
        when = f" at {_when(run.ended_at)}" if run.ended_at else ""
        yield Cause("ended", f"ended {run.status.value}{when}{why}", {"reasons": list(run.reasons)})
        return
    yield from _paused_run(tx, run.id)
    if run.status is RunStatus.PENDING:
        yield from not_started(tx, run.id, reap_after)
        return
    yield from _open_steps(tx, run, reap_after)


def _paused_run(tx: Transaction, run: str) -> Iterator[Cause]:
    row = tx.row(PAUSED, run=run)
    if row is not None and row[0] is not None:
        text = f"run {run} is paused since {_when(row[0])}: penstock resume {run}"
        yield Cause("run_paused", text, {"run": run, "since": instant(row[0])})


def not_started(tx: Transaction, run: str, reap_after: float) -> Iterator[Cause]:
    """Why a run that is pending has not begun."""
    row = tx.row(TIMER, run=run, kind=timers.START)
    if row is not None and row[0] is not None:
        text = f"is not due until {_when(row[0])}{_from_now(tx, int(row[0]))}"
        yield Cause("not_due", text, {"due_at": instant(row[0])})
    for id, pipeline, status in tx.rows(UPSTREAM, run=run, limit=MOST):
        text = f"waits for run {id} of {pipeline}, which is {status}"
        yield Cause("waits_for_run", text, {"run": str(id), "status": status})
    place = run_line.place_of(tx, run)
    if place is not None and not place.admitted:
        yield _in_line(place, place.most or _max_running(tx, run))
        if not any(process.role != SUPERVISOR for process in living(tx, reap_after)):
            yield Cause("no_worker", "no worker is running that would start it: penstock worker MODULE:APP")


def why_pending(tx: Transaction, run: str, reap_after: float) -> list[Cause]:
    """The same causes, as a list."""
    return list(not_started(tx, run, reap_after))


def _in_line(place: run_line.Place, most: int | None) -> Cause:
    limit = f"max_running of {place.pipeline} is {most}; " if most else ""
    runs = "1 run is" if place.under_way == 1 else f"{place.under_way or 'no'} runs are"
    text = f"waits in line, {place.before or 'none'} before it: {limit}{runs} under way"
    detail = {"pipeline": place.pipeline, "most": most or None, "under_way": place.under_way}
    return Cause("max_running", text, {**detail, "before": place.before})


def _max_running(tx: Transaction, run: str) -> int | None:
    """The limit of the run's own definition, as long as no worker has stored another."""
    row = tx.row(runs.DEFINITION, id=run)
    return None if row is None else Definition.from_text(str(row[0])).max_running


def _open_steps(tx: Transaction, run: RunStatusRow, reap_after: float) -> Iterator[Cause]:
    found = tx.rows(OPEN_STEPS, run=run.id, limit=MOST + 1)
    for id, node, path in found[:MOST]:
        report = jobs.job_report(tx, str(id))
        for cause in _of_job(tx, report, reap_after) if report is not None else ():
            if cause.kind != "run_paused":
                name = _step_name(node, path)
                text = f"step {name} (job {str(id)[:BRIEF]}) {cause.text}"
                yield Cause(cause.kind, text, cause.detail | {"step": name, "job": str(id)})
    if len(found) > MOST:
        yield Cause("more_steps", f"more than {MOST} steps are not over", {})
    for node, path, still_open in tx.rows(JOINS, run=run.id, end=END, limit=MOST):
        name = _step_name(node, path)
        yield Cause(
            "waits_for_steps",
            f"step {name} waits for {still_open} more of the steps before it",
            {"step": name, "open": still_open},
        )
    row = tx.row(EXPANDS, run=run.id)
    if row is not None and row[0]:
        yield Cause("expanding", "an expand over many elements is being written", {"expands": int(row[0])})


def _step_name(node: Row | str, path: str | None) -> str:
    return f"{node}{''.join(f'[{index}]' for index in path_of(path or ''))}"


def _when(micros: int) -> str:
    return instant(int(micros)).strftime("%Y-%m-%d %H:%M:%S UTC")


def _from_now(tx: Transaction, micros: int) -> str:
    row = tx.row(NOW)
    left = (int(micros) - int(row[0])) / 1e6 if row is not None else 0.0
    return f" (in {_length(left)})" if left > 0 else " (now)"


def _length(seconds: float) -> str:
    """A duration in its two largest units: "40 s", "12 m 05 s", "1 h 30 m", "3 d 4 h"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    if whole < 2 * 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
