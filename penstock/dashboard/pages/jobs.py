"""The list of jobs with its filters, the page of one job, and the forms for a new job and for acts on many."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

from penstock.dashboard.forms import argument_fields
from penstock.dashboard.pages.run_graph import SPLIT, attempt_spans
from penstock.dashboard.views import NotFound, Page, View
from penstock.database.transaction import Transaction
from penstock.operate import audit
from penstock.operate.diagnosis import explain
from penstock.operate.jobs import find_job
from penstock.operate.pages.job import JobAttempt, JobDetail, job_detail
from penstock.operate.pages.job_search import FoundJobs, JobSearch, search
from penstock.pipelines.advance.step_rows import NO_PAYLOAD
from penstock.queue.jobs import SCHEDULE_HEADER, headers_of
from penstock.values.status import JobStatus, Reason

PAGE_SIZE = 50
MOST_ACTS = 25
FILTERS = ("status", "queue", "task", "key", "label", "text", "since", "until", "reason", "fingerprint")
BULK = {"retry": "Retry", "cancel": "Cancel", "discard": "Discard"}


def jobs(view: View) -> Page:
    """The jobs that a filter matches, newest first."""
    wanted = search_of(view, view.text)
    found = view.read(search, wanted, PAGE_SIZE, view.id("before"))
    return Page("jobs.html", "Jobs", list_data(view, wanted, found))


def list_data(view: View, wanted: JobSearch, found: FoundJobs) -> dict[str, object]:
    return {
        "jobs": found.jobs,
        "before": found.before,
        "partial": found.partial,
        "walked": found.walked,
        "filter": {name: view.text(name) for name in FILTERS},
        "statuses": list(JobStatus),
        "tasks": sorted(view.app.task_names),
        "text_is_searched": view.sees_everything,
        "bulk": [name for name in BULK if _fits(name, wanted.status)] if wanted.given else [],
    }


def search_of(view: View, text: Callable[[str], str | None]) -> JobSearch:
    """The filter in a query string or a form. Text is searched only for viewers who may see all of it."""
    status = text("status")
    return JobSearch(
        status=JobStatus(status) if status in list(JobStatus) else None,
        queue=text("queue"),
        task=text("task"),
        key=text("key"),
        label=text("label"),
        text=text("text") if view.sees_everything else None,
        since=_instant(text("since")),
        until=_instant(text("until")),
        reason=text("reason"),
        fingerprint=text("fingerprint"),
        tasks=view.app.task_names,
    )


def bulk(view: View) -> Page:
    """The progress of an act on all jobs that a filter matches, with a button to continue."""
    given = view.text("action")
    action = given if given in BULK else None
    fields = {name: view.text(name) for name in FILTERS}
    return Page(
        "bulk.html",
        f"{BULK[action]} jobs" if action else "Many jobs",
        {
            "action": action,
            "filter": fields,
            "after": view.id("after"),
            "done": _number(view.text("done")),
            "seen": _number(view.text("seen")),
        },
        section="jobs",
    )


def new_job(view: View) -> Page:
    """The form for a new job of a task."""
    name = view.text("task")
    task = view.app.tasks.get(name) if name else None
    if name and task is None:
        raise NotFound(f"this process knows no task {name!r}")
    return Page(
        "new_job.html",
        "New job",
        {
            "task": name,
            "tasks": sorted(view.app.tasks),
            "fields": argument_fields(task, {}) if task else [],
            "queue": task.settings.queue if task else None,
            "description": (task.function.__doc__ or "").strip().partition("\n")[0] if task else None,
        },
        section="jobs",
    )


def job(view: View) -> Page:
    """The page of one job."""

    def read(tx: Transaction) -> tuple[JobDetail, dict[str, object]]:
        id = find_job(tx, view.args["id"])
        detail = job_detail(tx, id)
        if detail is None:
            raise NotFound(f"there is no job {id}; it may have been pruned")
        over = detail.job.status.terminal
        causes = () if over else explain.explain(tx, id, view.app.settings.reap_after).causes
        acts = audit.acts(tx, id, None, {}, MOST_ACTS)
        return detail, _job_data(view, detail) | {"causes": causes, "audit": acts}

    detail, data = view.read(read)
    return Page("job.html", f"{detail.job.task} {detail.job.id[-8:]}", data, section="jobs")


def _job_data(view: View, detail: JobDetail) -> dict[str, object]:
    one = detail.job
    task = view.app.tasks.get(one.task)
    values = json.loads(detail.payload) if view.sees_everything else None
    # A step has at most its element: its other values come from the run and the steps before it.
    payload = None if one.run_id and detail.payload == NO_PAYLOAD else detail.payload
    return {
        "job": one,
        "why": Reason.stored(one.reason).explanation if one.reason else None,
        "arguments": view.shown(one.task, "arguments", payload),
        "result": view.shown(one.task, "result", detail.output),
        "options": detail.options,
        "max_crashes": detail.max_crashes,
        "origin_id": detail.origin_id,
        "schedule": headers_of(detail.options).get(SCHEDULE_HEADER),
        "due_at": detail.due_at,
        "holder": detail.holder,
        "progress": _progress(view, detail),
        "attempts": [_attempt(view, one.task, attempt) for attempt in detail.attempts],
        "line": None
        if detail.line is None
        else dict(zip(("most", "used", "before"), detail.line, strict=True)),
        "limits": detail.limits,
        "labels": detail.labels,
        "timeline": _timeline(detail),
        "known": task is not None,
        "fields": argument_fields(task, values if isinstance(values, dict) else {}) if task else [],
        "can": _can(one.status, one.run_id is not None),
    }


def _timeline(detail: JobDetail) -> list[dict[str, object]]:
    """One row: when the job waited, and how each attempt ended. The end of an open span moves in steps, not at every
    look."""
    now = detail.now - detail.now % SPLIT + SPLIT
    spans = attempt_spans(detail.job, detail.attempts, now)
    return [
        {
            "spans": [
                {"kind": span.kind, "start_at": span.start, "end_at": span.end, "label": span.label}
                for span in spans
            ]
        }
    ]


def _progress(view: View, detail: JobDetail) -> dict[str, object] | None:
    if detail.progress is None:
        return None
    fraction, message, at = detail.progress
    told = view.shown(detail.job.task, "progress", message or None)
    return {"fraction": fraction, "message": told, "updated_at": at}


def _attempt(view: View, task: str, attempt: JobAttempt) -> dict[str, object]:
    return {
        "number": attempt.number,
        "process_id": attempt.process_id,
        "started_at": attempt.started_at,
        "finished_at": attempt.finished_at,
        "seconds": attempt.seconds,
        "outcome": attempt.outcome,
        "error_type": attempt.error_type,
        "error": view.shown(task, "error", attempt.error),
        "traceback": view.shown(task, "traceback", attempt.traceback),
    }


def _can(status: JobStatus, is_step: bool) -> dict[str, bool]:
    over = status in (JobStatus.FAILED, JobStatus.CANCELLED)
    return {
        "retry": over and not is_step,
        "cancel": not status.terminal,
        "discard": status is JobStatus.FAILED,
        "run_again": not is_step,
    }


def _fits(action: str, status: JobStatus | None) -> bool:
    match action:
        case "retry":
            return status in (JobStatus.FAILED, JobStatus.CANCELLED)
        case "discard":
            return status is JobStatus.FAILED
        case _:
            return status is None or not status.terminal


def _instant(text: str | None) -> int | None:
    """An instant in ISO 8601, as a form or a program writes it; without a zone it is UTC."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1_000_000)


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0
