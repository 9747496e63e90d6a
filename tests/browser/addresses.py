"""The address of every page, with ids and names of the filled application."""

from __future__ import annotations

from urllib.parse import quote

from tests.browser.filling import Filled
from tests.pages import addresses


def every_address(filled: Filled, process: str) -> list[str]:
    """Pages of a run are looked at with several: one that waits, one of 500 elements, one that failed; some opened."""
    opened = {
        f"/runs/{filled.large_run}": ["step=pack&state=failed", f"step=pack&path={filled.element}"],
        f"/runs/{filled.halted_run}": ["step=subtitles"],
        f"/runs/{filled.waiting_run}": [f"open={filled.child_run}"],
        "/jobs/new": ["task=parcel.label"],
        "/limits": [f"key={quote(filled.limit, '')}"],
        "/pipeline": [f"name=transcode&version={filled.version}"],
        "/schedules/new": ["name=report-us"],
    }
    return addresses(
        {
            "runs": [filled.waiting_run, filled.large_run, filled.halted_run],
            "jobs": [filled.failed_job, filled.hostile_job, filled.waiting_job],
            "processes": [process],
        },
        {"pipeline": ["month-end"], "schedule": ["report-us"]},
        opened,
    )
