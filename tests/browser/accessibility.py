"""axe, the checker of accessibility, run inside a page."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from playwright.sync_api import Page

CHECK = """() => axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.flatMap(
    rule => rule.nodes.map(node => `${rule.id}: ${node.target} ${node.failureSummary}`)))"""


@cache
def script() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text()


def violations(page: Page) -> list[str]:
    """The rules that this page breaks, each with its element and the reason; best there are none."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(script())
    found: list[str] = page.evaluate(CHECK)
    return found
