"""The address of every page, with ids of the filled application."""

from __future__ import annotations

import re

from penstock.dashboard.pages import ROUTES
from tests.browser.filling import Filled


def every_address(filled: Filled) -> list[str]:
    """Pages with an id are looked at with several: a run that waits, one that failed, one of 500 elements."""
    found: list[str] = []
    for route in ROUTES:
        if "{" not in route.path:
            found.append(route.path)
            continue
        section = route.path.split("/")[1]
        found += [re.sub(r"\{\w+\}", id, route.path) for id in _ids(filled, section)]
    return found


def _ids(filled: Filled, section: str) -> list[str]:
    match section:
        case "runs":
            return [filled.waiting_run, filled.large_run, filled.halted_run]
        case "jobs":
            return [filled.failed_job, filled.hostile_job, filled.waiting_job]
        case _:
            raise LookupError(f"which id for a page of {section}?")
