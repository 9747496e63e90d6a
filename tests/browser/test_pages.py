"""Every page, in both themes, on a telephone and on a desk: whole, quiet, and fit for screen readers."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")
pytest.importorskip("jinja2", reason="Jinja2 is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

from tests.browser.accessibility import violations
from tests.browser.fixtures import Pages, Shop, Theme

LOOKS = [(1440, "light"), (360, "dark")]
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_every_page(look: Pages, shop: Shop, width: int, theme: Theme) -> None:
    page = look(width=width, theme=theme)
    problems: list[str] = []
    for path in shop.addresses:
        page.goto(look.site + path)
        if page.locator("h1").count() != 1:
            problems.append(f"{path} has not one heading")
        if (more := page.evaluate(OVERFLOW)) > 0:
            problems.append(f"{path} is {more} px wider than {width} px")
        problems += [f"{path}: {broken}" for broken in violations(page)]
    assert not problems, "\n".join(problems)
