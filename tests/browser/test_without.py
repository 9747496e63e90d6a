"""Without a mouse, without a script, with the back button, from a deep link."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, expect

from tests.browser.clicks import told
from tests.browser.conftest import PATIENCE, Pages, Shop, apart

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


def test_an_act_a_menu_and_a_step_by_keyboard(look: Pages, shop: Shop) -> None:
    run = apart(shop.module.transcode.trigger, "by-keyboard.mov")
    page = look(f"/runs/{run.id}")
    _tab_to(page, "Pause")
    page.keyboard.press("Enter")
    told(page, "is paused")
    _tab_to(page, "Cancel")
    page.keyboard.press("Enter")
    expect(page.locator("details.menu[open]")).to_have_count(1)
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.name") == "grace"
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator("details.menu[open]")).to_have_count(0)
    _tab_to(page, "probe")
    page.keyboard.press("Enter")
    expect(page.locator("#step-title")).to_have_text("probe")
    apart(run.cancel)


def _tab_to(page: Page, words: str) -> None:
    """Go on with the tabulator to what has these words; from the beginning if it was passed."""
    for _ in range(120):
        page.keyboard.press("Tab")
        if words in page.evaluate("() => document.activeElement.textContent.trim().slice(0, 40)"):
            return
    raise AssertionError(f"{words!r} is not reached")


def test_a_run_of_500_elements_is_opened_down_to_one(look: Pages, shop: Shop) -> None:
    page = look(f"/runs/{shop.filled.large_run}")
    page.locator("a.node-link", has_text="pack").first.click()
    step = page.locator("#step")
    expect(step.locator("#step-title")).to_have_text("pack")
    step.get_by_role("link", name="Failed").click()
    failed = step.locator("tbody tr")
    expect(failed.first).to_contain_text("failed")
    failed.first.locator("th a").click()
    expect(page.locator("#step")).to_contain_text("shelf 14 is empty")
    page.locator("#step").get_by_role("link", name="Open the job").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("order.pack")


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


def test_acts_on_chosen_jobs_are_offered_when_some_are_chosen(look: Pages) -> None:
    page = look("/jobs?task=bank.charge")
    acts, box = page.locator("#chosen"), page.locator('tbody input[name="id"]').first
    expect(acts).to_be_hidden()
    box.check()
    expect(acts.get_by_role("button", name="Retry")).to_be_visible()
    box.uncheck()
    expect(acts).to_be_hidden()


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


def test_acts_without_a_script(look: Pages, shop: Shop) -> None:
    """A menu, a question that only a script could ask, a new job, a schedule, an act on all that match."""
    page = look("/jobs/new", java_script_enabled=False)
    page.get_by_label("Task", exact=True).select_option("report.render")
    page.get_by_role("button", name="Choose").click()
    page.get_by_label("region").fill("apac")
    page.get_by_label("Queue").fill("scriptless")
    page.get_by_role("button", name="Enqueue").click()
    told(page, "is enqueued")
    page.locator("details.menu", has_text="Cancel").locator("summary").click()
    page.get_by_role("button", name="Cancel the job").click()
    told(page, "will end cancelled")
    page.goto(f"{look.site}/jobs?queue=scriptless&status=cancelled")
    page.get_by_role("button", name="Retry all").click()
    expect(page.locator("main")).to_contain_text("1 of 1 jobs so far")
    page.goto(f"{look.site}/schedule?name=hourly-film")
    page.locator("details.menu", has_text="Pause").locator("summary").click()
    page.locator("details.menu[open]").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    told(page, "goes on")
    page.goto(f"{look.site}/jobs?queue=scriptless&status=available")
    page.locator('tbody input[name="id"]').first.check()
    page.locator("#chosen").get_by_role("button", name="Cancel").click()
    told(page, "will end cancelled")
