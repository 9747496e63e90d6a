"""The pages, one module for each subject, and the addresses at which they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from penstock.dashboard.pages import jobs, operate, overview, pipelines, runs, schedules
from penstock.dashboard.views import NotFound, Page, View

ID = r"[0-9a-fA-F-]{1,36}"


@dataclass(frozen=True, slots=True)
class Route:
    """An address and its page. `{name}` in a path is an id, or the beginning of one."""

    path: str
    page: Callable[[View], Page]
    section: str = ""


ROUTES: tuple[Route, ...] = (
    Route("/", overview.overview, "overview"),
    Route("/overview", overview.overview, "overview"),
    Route("/jobs", jobs.jobs, "jobs"),
    Route("/jobs/new", jobs.new_job, "jobs"),
    Route("/jobs/bulk", jobs.bulk, "jobs"),
    Route("/jobs/{id}", jobs.job, "jobs"),
    Route("/failures", operate.failures, "failures"),
    Route("/reconcilers", operate.all_reconcilers, "reconcilers"),
    Route("/processes", operate.processes, "processes"),
    Route("/processes/{id}", operate.process, "processes"),
    Route("/limits", operate.limits, "limits"),
    Route("/audit", operate.audit, "audit"),
    Route("/doctor", operate.doctor, "doctor"),
    Route("/settings", operate.settings, "settings"),
    Route("/search", operate.search, "search"),
    Route("/runs", runs.runs, "runs"),
    Route("/runs/{id}", runs.run, "runs"),
    Route("/pipelines", pipelines.pipelines, "pipelines"),
    Route("/pipeline", pipelines.pipeline, "pipelines"),
    Route("/schedules", schedules.schedules, "schedules"),
    Route("/schedules/new", schedules.new_schedule, "schedules"),
    Route("/schedule", schedules.schedule, "schedules"),
)
NAVIGATION: tuple[tuple[str, str, str], ...] = (
    ("overview", "Overview", "/"),
    ("jobs", "Jobs", "/jobs"),
    ("failures", "Failures", "/failures"),
    ("runs", "Runs", "/runs"),
    ("pipelines", "Pipelines", "/pipelines"),
    ("schedules", "Schedules", "/schedules"),
    ("reconcilers", "Reconcilers", "/reconcilers"),
    ("processes", "Processes", "/processes"),
    ("limits", "Limits", "/limits"),
    ("audit", "Audit", "/audit"),
    ("doctor", "Doctor", "/doctor"),
    ("settings", "Settings", "/settings"),
)
"""(section, its name for people, its address)"""


def find(path: str) -> tuple[Route, dict[str, str]]:
    """The route for a path, and the ids in it."""
    wanted = path.rstrip("/") or "/"
    for pattern, route in _patterns():
        if found := pattern.fullmatch(wanted):
            return route, found.groupdict()
    raise NotFound("there is no page at this address")


@cache
def _patterns() -> list[tuple[re.Pattern[str], Route]]:
    return [(re.compile(re.sub(r"{(\w+)}", rf"(?P<\1>{ID})", route.path)), route) for route in ROUTES]
