"""Every page, in both themes, on a telephone and on a desk: whole, quiet, and fit for screen readers."""

from __future__ import annotations

import pytest

from tests.browser.accessibility import OF_A_LOOK, violations
from tests.browser.conftest import Pages, Shop, Theme

READ: tuple[tuple[int, Theme], ...] = ((1440, "light"), (360, "dark"))
"""Looks that axe examines, the first with all of its rules."""
SEEN: tuple[tuple[int, Theme], ...] = ((1440, "dark"), (360, "light"), (3840, "dark"))
"""Further looks: nothing is wider than the screen. A page is opened once, and its window and theme are changed."""
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("part", range(2))
def test_every_page(look: Pages, shop: Shop, part: int) -> None:
    page = look()
    problems: list[str] = []
    for path in shop.addresses[part::2]:
        page.goto(look.site + path)
        if page.locator("h1").count() != 1:
            problems.append(f"{path} has not one heading")
        for width, theme in (*READ, *SEEN):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme)
            if (more := page.evaluate(OVERFLOW)) > 0:
                problems.append(f"{path} is {more} px wider than {width} px")
            if (width, theme) in READ:
                only = () if (width, theme) == READ[0] else OF_A_LOOK
                problems += [f"{path} at {width} px, {theme}: {broken}" for broken in violations(page, only)]
    assert not problems, "\n".join(problems)
