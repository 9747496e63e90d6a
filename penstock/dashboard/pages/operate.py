"""Pages for operators: failures, reconcilers, processes, limits, the audit trail, settings, the doctor, the search."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields

from penstock.dashboard.access import Right
from penstock.dashboard.http import address
from penstock.dashboard.views import NotFound, Page, Shown, View
from penstock.database.transaction import Transaction
from penstock.operate import reconcilers
from penstock.operate.audit import Act, AuditFilter, page_of_acts
from penstock.operate.pages import limits as limit_pages
from penstock.operate.pages.failures import FailureGroup
from penstock.operate.pages.failures import failures as group_failures
from penstock.operate.pages.search import SearchHit, look_up
from penstock.operate.processes import SUPERVISOR, ProcessRow, held_jobs, list_processes
from penstock.queue import stack_dumps
from penstock.queue.stack_dumps import StackDump
from penstock.queue.unknown_tasks import KNOWS
from penstock.queue.wakeup_targets import CHANNEL_KEY
from penstock.schema import version
from penstock.settings import Settings

MOST_NAMES = 20
ACTS_PAGE = 50
MOST_FAILING = 100
BRIEF = 500
ANSWER_WITHIN = 15.0
"""Seconds after which a process that has not shown its stacks is said not to answer."""
KINDS = {
    "all": "worker",
    "worker": "worker of jobs",
    "advancer": "advancer of runs",
    "reconciler": "reconciler of rows",
}
"""Words for the work of a process, by its role."""
SHOWN_APART = frozenset({"new_run", "schedule"})
"""Details of an act that have links of their own."""
INTERNAL = frozenset({"birth", CHANNEL_KEY, KNOWS})
"""Details of a process that only processes read."""
WHOLE_ID = 36
"""Characters of an id that is not shortened."""


def failures(view: View) -> Page:
    """Dead letters in groups: the same task, exception and place."""
    found = view.read(group_failures)
    return Page(
        "failures.html",
        "Failures",
        {
            "groups": [_group(view, group) for group in found.groups],
            "total": found.total,
            "limit": found.limit,
        },
    )


def _group(view: View, group: FailureGroup) -> dict[str, object]:
    wanted: dict[str, object] = {"status": "failed", "task": group.task}
    if group.fingerprint is None:
        wanted["reason"] = group.reason
    else:
        wanted["fingerprint"] = group.fingerprint
    return {
        "fingerprint": group.fingerprint,
        "task": group.task,
        "reason": group.reason,
        "error_type": group.error_type,
        "place": group.place,
        "count": group.count,
        "first_at": group.first_at,
        "last_at": group.last_at,
        "hours": group.hours,
        "sample_id": group.sample_id,
        "error": view.shown(group.task, "error", group.error, BRIEF),
        "filter": wanted,
        "jobs": address("/jobs", wanted),
    }


def all_reconcilers(view: View) -> Page:
    """Reconcilers of this app: due, held and failing rows."""
    app = view.app
    rows = (
        view.read(reconcilers.look_within, app.database, app.reconcilers.values()) if app.reconcilers else []
    )
    failing = view.read(reconcilers.failing, MOST_FAILING)
    return Page(
        "reconcilers.html",
        "Reconcilers",
        {
            "reconcilers": rows,
            "failing": [
                {
                    "reconciler": row.reconciler,
                    "row": row.row,
                    "attempts": row.attempts,
                    "error": view.shown(row.reconciler, "error", row.error, BRIEF),
                    "failed_at": row.failed_at,
                }
                for row in failing
            ],
            "limit": MOST_FAILING,
            "count_limit": reconcilers.COUNT_LIMIT,
        },
    )


def processes(view: View) -> Page:
    """Hosts, and on each its supervisors, their children and other processes."""
    found = view.read(list_processes)
    reap_after = view.app.settings.reap_after
    hosts: dict[str, list[dict[str, object]]] = {}
    for row in found:
        hosts.setdefault(row.host, []).append(_process(row, reap_after))
    return Page(
        "processes.html",
        "Processes",
        {"hosts": [{"host": host, "processes": hosts[host]} for host in sorted(hosts)], "count": len(found)},
    )


def process(view: View) -> Page:
    """One process and the jobs that it holds; if it has ended, the page says so."""
    wanted = view.args["id"].lower()

    def read(tx: Transaction) -> dict[str, object] | None:
        row = next((row for row in list_processes(tx) if row.id.startswith(wanted)), None)
        if row is None:
            return None
        return {
            "process": _process(row, view.app.settings.reap_after),
            "jobs": held_jobs(tx, row.id),
            "offers_stacks": row.role != SUPERVISOR,
            "stacks": _stacks(view, stack_dumps.find(tx, row.id)),
        }

    data = view.read(read)
    if data is not None:
        return Page("process.html", "Process", data, section="processes")
    if len(wanted) < WHOLE_ID:
        raise NotFound(f"there is no process whose id begins with {wanted}: it has ended, or never existed")
    return Page("process_ended.html", "Process", {"process": None, "id": wanted}, section="processes")


def _stacks(view: View, found: StackDump | None) -> dict[str, object] | None:
    """The request for the stacks of a process, with the answer once it is there."""
    if found is None:
        return None
    text = found.stacks
    shown = None if text is None else Shown(text if view.may(Right.PAYLOADS) else None, size=len(text))
    return {
        "asked_at": found.asked_at,
        "asked_by": found.asked_by,
        "answered_at": found.answered_at,
        "late": text is None and found.age > ANSWER_WITHIN,
        "text": shown,
    }


def _process(row: ProcessRow, reap_after: float) -> dict[str, object]:
    details = row.details if isinstance(row.details, dict) else {}
    return {
        "id": row.id,
        "host": row.host,
        "pid": row.pid,
        "role": row.role,
        "kind": KINDS.get(row.role, row.role),
        "supervisor_id": row.supervisor_id,
        "started_at": row.started_at,
        "silence": round(row.silence),
        "silent": row.is_silent(reap_after),
        "holding": row.holding,
        "queues": details.get("queues"),
        "details": {name: value for name, value in details.items() if name not in INTERNAL},
    }


def limits(view: View) -> Page:
    """Keys of limits, the longest waiting lines first; for one key, the jobs that count against it and those that
    wait."""
    key, after = view.text("key"), view.text("after")
    rows = view.read(limit_pages.limit_keys, after or "", limit_pages.PAGE + 1)
    held, waiting = view.read(limit_pages.of_key, key) if key else ([], [])
    return Page(
        "limits.html",
        "Limits",
        {
            "limits": sorted(rows[: limit_pages.PAGE], key=lambda one: -one.waiting),
            "after": rows[limit_pages.PAGE - 1].key if len(rows) > limit_pages.PAGE else None,
            "most_counted": limit_pages.MOST_COUNTED,
            "key": key,
            "held": held,
            "waiting": waiting,
            "most_jobs": limit_pages.MOST_JOBS,
        },
    )


def audit(view: View) -> Page:
    """Acts of people and programs, the latest first."""
    wanted = AuditFilter(view.id("subject"), view.text("by"), view.text("act"))
    found = view.read(page_of_acts, wanted, ACTS_PAGE + 1, view.id("before"))
    shown = found[:ACTS_PAGE]
    return Page(
        "audit.html",
        "Audit",
        {
            "acts": [_act(act) for act in shown],
            "before": shown[-1].id if len(found) > ACTS_PAGE else None,
            "filter": {"subject": wanted.subject, "by": wanted.by, "act": wanted.act},
        },
    )


def _act(act: Act) -> dict[str, object]:
    subject = act.subject or ""
    pages = {"run": f"/runs/{subject}", "job": f"/jobs/{subject}"}
    named = act.detail.get("schedule")
    if act.kind == "schedule" and isinstance(named, str):
        pages["schedule"] = address("/schedule", {"name": named})
    return {
        "id": act.id,
        "at": act.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "by": act.by,
        "why": act.why,
        "act": act.act,
        "kind": act.kind,
        "subject": act.subject,
        "run": act.run,
        "detail": act.detail,
        "new_run": act.detail.get("new_run"),
        "words": ", ".join(
            _told(name, value) for name, value in act.detail.items() if name not in SHOWN_APART
        ),
        "page": pages.get(act.kind),
    }


def _told(name: str, value: object) -> str:
    """A detail of an act in words: `count 3`, `changed every, overlap`."""
    words = name.replace("_", " ")
    if value is True:
        return words
    if isinstance(value, list):
        return f"{words} {', '.join(map(_item, value))}"
    return f"{words} {_item(value)}"


def _item(value: object) -> str:
    return " ".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def settings(view: View) -> Page:
    """The settings of this process; secrets are hidden."""
    current = view.app.settings
    rows = []
    for one in fields(Settings):
        value, default = getattr(current, one.name), one.default
        shown = _setting(value) if one.repr else ("set" if value is not None else "not set")
        if one.name == "database_url":
            shown = current.shown_url
        rows.append(
            {
                "name": one.name,
                "value": shown,
                "changed": value != default,
                "meaning": one.metadata["meaning"],
                "secret": not one.repr,
            }
        )
    about = {
        "penstock": sys.modules["penstock"].__version__,
        "python": sys.version.split()[0],
        "schema": version.LATEST,
        "database": current.backend,
        "tasks": len(view.app.tasks),
        "pipelines": len(view.app.pipelines),
        "reconcilers": len(view.app.reconcilers),
    }
    return Page("settings.html", "Settings", {"settings": rows, "about": about})


def _setting(value: object) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def doctor(view: View) -> Page:
    """The latest findings of the doctor."""
    return Page("doctor.html", "Doctor", {"troubles": view.troubles()})


def search(view: View) -> Page:
    """Everything that a text names: by id, key, label or name."""
    text = view.text("q") or ""
    app = view.app
    found: list[dict[str, object]] = []
    if text:
        hits = view.read(look_up, text, sorted(app.task_names), sorted(app.pipelines))
        found = [_hit(hit) for hit in hits]
        found += _named(text, {"task": sorted(app.tasks), "pipeline": sorted(app.pipelines)})
    title = f"Search: {text}" if text else "Search"
    return Page("search.html", title, {"q": text, "found": found}, to=_only(text, found))


def _only(text: str, found: Sequence[Mapping[str, object]]) -> str | None:
    """The page of the one thing that a text names; None if it names several, or is only a part of a name.

    A label names many things, even if only one has it so far. The beginning of an id counts if nothing else is found.
    """
    named = [one for one in found if one["by"] == "label" or _is_whole(text, one)] or found
    is_sure = any(one["by"] == "id" or _is_whole(text, one) for one in named)
    pages = {str(one["page"]) for one in named}
    return pages.pop() if is_sure and len(pages) == 1 else None


def _is_whole(text: str, one: Mapping[str, object]) -> bool:
    """True if the text is the whole key, id or name."""
    name = str(one["name"])
    if one["by"] == "id":
        return text.replace("-", "").lower() == name.replace("-", "")
    return one["by"] == "key" or text == name


def _hit(hit: SearchHit) -> dict[str, object]:
    pages = {
        "job": f"/jobs/{hit.name}",
        "run": f"/runs/{hit.name}",
        "process": f"/processes/{hit.name}",
        "schedule": address("/schedule", {"name": hit.name}),
    }
    return {"kind": hit.kind, "name": hit.name, "by": hit.by, "detail": hit.detail, "page": pages[hit.kind]}


def _named(text: str, known: Mapping[str, list[str]]) -> list[dict[str, object]]:
    pages = {"task": ("/jobs", "task"), "pipeline": ("/pipeline", "name")}
    return [
        {
            "kind": kind,
            "name": name,
            "by": "name",
            "detail": "",
            "page": address(pages[kind][0], {pages[kind][1]: name}),
        }
        for kind, names in known.items()
        for name in [name for name in names if text.lower() in name.lower()][:MOST_NAMES]
    ]
