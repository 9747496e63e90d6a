"""The address of every page, with ids and names of the filled application."""

from __future__ import annotations

from tests.browser.filling import Filled
from tests.pages import addresses


def every_address(filled: Filled, process: str) -> list[str]:
    """Pages of a run are looked at with several: one that waits, one of 500 elements, one that failed."""
    return addresses(
        {
            "runs": [filled.waiting_run, filled.large_run, filled.halted_run],
            "jobs": [filled.failed_job, filled.hostile_job, filled.waiting_job],
            "processes": [process],
        },
        {"pipeline": ["month-end"], "schedule": ["report-us"]},
    )
