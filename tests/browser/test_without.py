"""Without a mouse, without a script, with the back button, from a deep link."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")
pytest.importorskip("jinja2", reason="Jinja2 is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

from playwright.sync_api import Page, expect

from tests.browser.fixtures import PATIENCE, Pages, Shop

expect.set_options(timeout=PATIENCE)
FOCUSED = "() => document.activeElement.id || document.activeElement.textContent.trim()"


def test_everything_is_reached_by_keyboard(look: Pages, shop: Shop) -> None:
    page = look("/")
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "main"
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    page.keyboard.press("/")
    assert page.evaluate(FOCUSED) == "search"
    page.keyboard.type(shop.filled.failed_job)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{look.site}/jobs/{shop.filled.failed_job}")
    page.goto(f"{look.site}/jobs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    chosen = page.evaluate("() => document.activeElement.href")
    page.keyboard.press("Enter")
    expect(page).to_have_url(chosen)


def test_a_theme_that_was_chosen_stays(look: Pages) -> None:
    page = look("/", theme="light")
    assert _background(page) > 200
    page.keyboard.press("t")
    assert _background(page) < 60
    page.goto(f"{look.site}/jobs")
    assert _background(page) < 60
    page.get_by_role("button", name="Change between light and dark").click()
    assert _background(page) > 200


def _background(page: Page) -> int:
    """How bright the page is: 0 is black, 255 is white."""
    colour: str = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    return int(colour.strip("rgba()").split(",")[0])


def test_a_filter_is_in_the_address_and_the_back_button_leaves_it(look: Pages) -> None:
    page = look("/jobs")
    page.get_by_label("Task", exact=True).fill("bank.charge")
    page.get_by_label("Status", exact=True).select_option("failed")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**task=**")
    asked = parse_qs(urlsplit(page.url).query)
    assert (asked["task"], asked["status"]) == (["bank.charge"], ["failed"])
    assert "queue" not in asked
    page.go_back()
    expect(page.get_by_label("Queue", exact=True)).to_be_enabled()
    expect(page.get_by_label("Task", exact=True)).to_be_enabled()
    page.go_forward()
    expect(page.get_by_label("Task", exact=True)).to_have_value("bank.charge")


def test_pages_forms_and_acts_work_without_a_script(look: Pages, shop: Shop) -> None:
    page = look("/", java_script_enabled=False)
    page.get_by_role("link", name="Jobs", exact=True).first.click()
    page.get_by_label("Task", exact=True).fill("bank.charge")
    page.get_by_label("Status", exact=True).select_option("failed")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("main tbody tr").first).to_contain_text("bank.charge")
    expect(page.get_by_text("Reload to see changes")).to_be_visible()
    page.goto(f"{look.site}/jobs/{shop.filled.failed_job}")
    page.get_by_role("button", name="Retry").first.click()
    expect(page.get_by_role("status").first).to_contain_text("will run again")
