"""The list of jobs with its filters."""

from __future__ import annotations

from dataclasses import asdict

from penstock.dashboard.views import Page, View
from penstock.operate import jobs as queries
from penstock.operate.jobs import JobFilter
from penstock.values.status import JobStatus

PAGE_SIZE = 50


def jobs(view: View) -> Page:
    """Jobs, newest first, that a filter matches."""
    status = view.text("status")
    wanted = JobFilter(
        JobStatus(status) if status in list(JobStatus) else None, view.text("queue"), view.text("task")
    )
    found = view.read(queries.list_jobs, wanted, PAGE_SIZE, view.id("before"))
    return Page(
        "jobs.html",
        "Jobs",
        {"jobs": found.jobs, "before": found.before, "filter": asdict(wanted), "statuses": list(JobStatus)},
    )
