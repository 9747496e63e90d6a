"""Small moves of tests that act by clicking: open a menu, answer a question, read the notice, look into the audit."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.browser.fixtures import Shop, apart


def told(page: Page, words: str) -> None:
    """The page says what came of an act."""
    expect(page.locator("#notice")).to_contain_text(words)


def done_by_ann(shop: Shop, id: str | None, act: str) -> None:
    found = [(one.act, one.by) for one in apart(shop.app.audit, id)]
    assert (act, "ann") in found, found


def in_menu(page: Page, name: str) -> Locator:
    """The small form behind a button, opened."""
    found = page.locator("details.menu").filter(has=page.locator("summary", has_text=name)).first
    found.locator("summary").click()
    expect(found).to_have_attribute("open", "")
    return found


def say_yes(page: Page) -> None:
    page.get_by_role("dialog").get_by_role("button", name="Yes").click()
