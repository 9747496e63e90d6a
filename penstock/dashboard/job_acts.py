"""Acts on jobs by the thousand, new jobs, and the acts of operators: queues, reconcilers, processes, the doctor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.dashboard.access import Right
from penstock.dashboard.acts import DashboardAct, Done, Form, WrongForm, id_of, optional_text, text_of
from penstock.dashboard.forms import PREFIX, arguments_of
from penstock.dashboard.http import address
from penstock.dashboard.pages.jobs import FILTERS, search_of
from penstock.dashboard.views import NotFound, View
from penstock.errors import ActionRefused
from penstock.operate import actions, processes
from penstock.operate.jobs import JobRow
from penstock.operate.pages.job import payload_of
from penstock.operate.pages.job_search import search
from penstock.values.parse import parse_seconds
from penstock.values.plain import counted

BATCH = 500
SECONDS = 1.0
"""Seconds that one batch searches for jobs, at most."""
WORDS = {"retry": "will run again", "cancel": "will end cancelled", "discard": "discarded"}


def change_matching(view: View, form: Form) -> Done:
    """Retry, cancel or discard the next batch of the jobs that a filter matches, and say where to go on.

    The caller repeats the act with the `after` that it returns, as long as there is `more`. Jobs that are enqueued
    meanwhile are newer than `after` and are left alone. An act that is interrupted has done its first batches
    completely.
    """
    action = text_of(form, "action")
    if action not in WORDS:
        raise WrongForm(f"there is no act {action!r} on many jobs: {', '.join(WORDS)}")
    wanted = search_of(view, lambda name: optional_text(form, name))
    if not wanted.given:
        raise WrongForm("give a filter: this would be about every job there is")
    after = id_of(form, "after") if optional_text(form, "after") else None
    found = view.read(search, wanted, BATCH, after, SECONDS)
    count = len(_change(view, action, found.jobs))
    done, seen = _number(form, "done") + count, _number(form, "seen") + len(found.jobs)
    more = found.before is not None
    fields = {name: optional_text(form, name) for name in FILTERS}
    place = {"action": action, **fields, "after": found.before, "done": done, "seen": seen}
    words = f"{done:,} of {seen:,} jobs: {WORDS[action]}" + ("; there may be more" if more else "")
    data = {"count": count, "done": done, "seen": seen, "after": found.before, "more": more}
    return Done(words, data, address("/jobs/bulk", place))


def _change(view: View, action: str, rows: Sequence[JobRow]) -> list[str]:
    alone = [row.id for row in rows if row.run_id is None]
    match action:
        case "cancel":
            may = view.may(Right.RUNS)
            return actions.cancel(view.app, [row.id for row in rows if may or row.run_id is None])
        case "discard":
            return actions.discard(view.app, [row.id for row in rows])
        case _:
            return actions.retry(view.app, alone) + _retry_steps(view, rows)


def _retry_steps(view: View, rows: Sequence[JobRow]) -> list[str]:
    """Do failed steps again in a new run that keeps what succeeded, for viewers who may act on runs."""
    steps: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.run_id is not None and row.node is not None and view.may(Right.RUNS):
            steps.setdefault((row.run_id, row.node), []).append(row.id)
    again: list[str] = []
    for (run, node), ids in steps.items():
        try:
            view.app.run(run).retry_step(node)
        except ActionRefused:
            continue  # the run is still active, or was revived already
        again += actions.discard(view.app, ids)
    return again


def new_job(view: View, form: Form) -> Done:
    """Enqueue a job of a task, with the arguments in the form; or repeat a job by its id, with its own arguments."""
    origin = id_of(form) if optional_text(form, "id") else None
    known = None if origin is None else view.read(payload_of, origin)
    if origin is not None and known is None:
        raise NotFound(f"there is no job {origin}; it may have been pruned")
    name = optional_text(form, "task") or (known[0] if known else "")
    task = view.app.tasks.get(name)
    if task is None:
        raise WrongForm(
            f"this process knows no task {name!r}: start the dashboard with the app that declares it"
        )
    given = any(field.startswith(PREFIX) for field in form)
    args, kwargs = (
        arguments_of(task, form) if given or known is None else task.codec.decode_arguments(known[2])
    )
    job = task.options(**_options(form, known[1] if known else None)).enqueue(*args, **kwargs)
    return Done(f"job {job.id} is enqueued", {"id": job.id}, f"/jobs/{job.id}")


def _options(form: Form, queue: str | None) -> dict[str, Any]:
    given: dict[str, Any] = {
        "queue": optional_text(form, "queue") or queue,
        "key": optional_text(form, "key"),
    }
    if (priority := optional_text(form, "priority")) is not None:
        try:
            given["priority"] = int(priority)
        except ValueError:
            raise WrongForm(f"priority: {priority!r} is not a whole number") from None
    if (delay := optional_text(form, "delay")) is not None:
        try:
            given["delay"] = parse_seconds(delay)
        except ValueError as error:
            raise WrongForm(f"delay: {error}") from None
    return {name: value for name, value in given.items() if value is not None}


def pause_queue(view: View, form: Form) -> Done:
    """Have no worker claim from a queue."""
    queue = text_of(form, "queue")
    paused = view.app.pause_queue(queue, optional_text(form, "why"))
    return Done(f"queue {queue} is paused{'' if paused else ' already'}", {"paused": paused})


def resume_queue(view: View, form: Form) -> Done:
    """Have workers claim from a queue again."""
    queue = text_of(form, "queue")
    resumed = view.app.resume_queue(queue, optional_text(form, "why"))
    return Done(f"queue {queue} is {'resumed' if resumed else 'not paused'}", {"resumed": resumed})


def hint_reconciler(view: View, form: Form) -> Done:
    """Have a reconciler look at its table now; with a key, at that row in any case."""
    name = text_of(form, "reconciler")
    reconciler = view.app.reconcilers.get(name)
    if reconciler is None:
        raise NotFound(f"this process knows no reconciler {name!r}")
    key = optional_text(form, "row")
    view.app.hint(reconciler.target.entity, *([] if key is None else [key]))
    return Done(f"{name} looks at {reconciler.target.name if key is None else f'row {key}'} now")


def ask_stacks(view: View, form: Form) -> Done:
    """Ask a process for the stacks of its threads."""
    processes.ask_for_stacks(view.app, id_of(form, "process"))
    return Done("The process was asked for its stacks.")


def examine(view: View, _form: Form) -> Done:
    """Make every check of the doctor now."""
    assert view.doctor is not None
    found = view.doctor.examine()
    bad = [one for one in found if one.advice]
    return Done(f"{counted(len(found), 'finding')}, {len(bad)} of them with advice", {"findings": found})


def _number(form: Form, name: str) -> int:
    value = str(form.get(name, "0"))
    return int(value) if value.isascii() and value.isdigit() else 0


JOB_ACTS: tuple[DashboardAct, ...] = (
    DashboardAct("change-matching-jobs", Right.JOBS, change_matching),
    DashboardAct("new-job", Right.ENQUEUE, new_job),
    DashboardAct("pause-queue", Right.OPERATE, pause_queue),
    DashboardAct("resume-queue", Right.OPERATE, resume_queue),
    DashboardAct("hint-reconciler", Right.OPERATE, hint_reconciler),
    DashboardAct("ask-stacks", Right.OPERATE, ask_stacks),
    DashboardAct("examine", Right.OPERATE, examine),
)
