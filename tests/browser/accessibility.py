"""axe, the checker of accessibility, run inside a page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from playwright.sync_api import Page

LONG = ["tbody tr:nth-child(n+11)", ".timeline > li:nth-child(n+11)"]
"""Of rows that are alike, the first ten are looked at: colours cost as much as there are texts."""
OF_A_LOOK = ["color-contrast", "scrollable-region-focusable", "link-in-text-block"]
"""Rules that another theme or width can break."""
CHECK = """([long, only]) => axe.run(
    {exclude: long.map(one => [one])}, {resultTypes: ["violations"], ...(only.length ? {runOnly: only} : {})}
).then(found => found.violations.flatMap(
    rule => rule.nodes.map(node => `${rule.id}: ${node.target} ${node.failureSummary}`)))"""


@cache
def script() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text()


def violations(page: Page, only: Sequence[str] = ()) -> list[str]:
    """The rules, or some `only`, that this page breaks, each with its element and the reason; best there are none."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(script())
    found: list[str] = page.evaluate(CHECK, [LONG, list(only)])
    return found
