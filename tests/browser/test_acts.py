"""Acts by clicking, as a person does them, each seen in the database and in the audit trail afterwards."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from penstock.testing import drain
from tests.browser.clicks import done_by_ann, in_menu, say_yes, told
from tests.browser.conftest import PATIENCE, Pages, Shop, apart
from tests.waiting import eventually

expect.set_options(timeout=PATIENCE)


def test_acts_on_a_job(look: Pages, shop: Shop) -> None:
    job = apart(shop.module.charge.options(queue="acts").enqueue, "acct-77", 770)
    apart(drain, shop.app, queues="acts")
    page = look(f"/jobs/{job.id}")
    page.get_by_role("button", name="Retry").click()
    told(page, "will run again")
    assert job.status == "available"
    in_menu(page, "Cancel").locator("button").first.click()
    told(page, "cancel")
    assert job.status == "cancelled"
    in_menu(page, "Run again").get_by_role("button", name="With the same arguments").click()
    page.wait_for_url(lambda url: "/jobs/" in url and job.id not in url)
    again = page.url.rpartition("/")[2]
    assert apart(lambda: shop.app.job(again).kwargs) == {"account": "acct-77", "cents": 770}
    done_by_ann(shop, job.id, "cancel")
    apart(shop.app.job(again).cancel)


def test_a_dead_letter_is_discarded_after_a_question(look: Pages, shop: Shop) -> None:
    job = apart(shop.module.charge.options(queue="acts").enqueue, "acct-78", 770)
    apart(drain, shop.app, queues="acts")
    page = look(f"/jobs/{job.id}")
    page.get_by_role("button", name="Discard").click()
    page.get_by_role("dialog").get_by_role("button", name="No").click()
    assert job.id in [one.id for one in apart(shop.app.dead_letters)]
    page.get_by_role("button", name="Discard").click()
    say_yes(page)
    told(page, "discarded")
    assert job.id not in [one.id for one in apart(shop.app.dead_letters)]


def test_a_new_job_by_its_form(look: Pages, shop: Shop) -> None:
    page = look("/jobs/new?task=report.render")
    page.get_by_label("region").fill("apac")
    page.locator("main form button").last.click()
    page.wait_for_url("**/jobs/*-*")
    job = shop.app.job(page.url.rpartition("/")[2])
    assert apart(lambda: job.kwargs)["region"] == "apac"
    apart(job.cancel)


def test_acts_on_runs(look: Pages, shop: Shop) -> None:
    run = apart(shop.module.month_end.trigger, 1)
    apart(drain, shop.app, queues="default")
    apart(drain, shop.app, queues="shipping")
    apart(drain, shop.app, queues="default")
    page = look(f"/runs/{run.id}")
    page.get_by_role("button", name="Pause").click()
    _stands(lambda: str(run.status), "paused")
    page.get_by_role("button", name="Resume").click()
    _stands(lambda: str(run.status), "running")
    page.get_by_role("button", name="Approve").click()
    told(page, "approve")
    apart(drain, shop.app, queues="default")
    expect(page.get_by_text("succeeded").first).to_be_visible()
    done_by_ann(shop, run.id, "signal")
    other = apart(shop.module.transcode.trigger, "cancelled.mov")
    page.goto(f"{look.site}/runs/{other.id}")
    in_menu(page, "Cancel").get_by_role("button", name="Cancel the run").click()
    _stands(lambda: str(other.status), "cancelled")
    page.goto(f"{look.site}/runs/{shop.filled.halted_run}")
    in_menu(page, "Run again").get_by_role("button", name="With the same arguments").click()
    page.wait_for_url(lambda url: shop.filled.halted_run not in url)


def test_signals_by_choice_and_by_value(look: Pages, shop: Shop) -> None:
    """A value that is typed and sent with Enter is the value, and no approval."""
    runs = [apart(shop.module.month_end.trigger, 1) for _ in range(2)]
    for queue in ("default", "shipping", "default"):
        apart(drain, shop.app, queues=queue)
    page = look(f"/runs/{runs[0].id}")
    page.get_by_role("button", name="Reject").click()
    told(page, "approve was given")
    page.goto(f"{look.site}/runs/{runs[1].id}")
    page.get_by_label("or another value").fill("eve")
    page.keyboard.press("Enter")
    told(page, "approve was given")
    apart(drain, shop.app, queues="default")
    assert [apart(run.result) for run in runs] == [
        "1 parcels, approved by False",
        "1 parcels, approved by eve",
    ]


def test_a_double_click_makes_one(look: Pages, shop: Shop) -> None:
    job = apart(shop.module.render.options(queue="twice").enqueue, "eu")
    page = look(f"/jobs/{job.id}")
    again = in_menu(page, "Run again").get_by_role("button", name="With the same arguments")
    again.dblclick()
    page.wait_for_url(lambda url: "/jobs/" in url and job.id not in url)
    first = page.url
    assert len(apart(_of_queue, shop, "twice")) == 2
    page.go_back()
    menu = page.locator("details.menu").filter(has_text="Run again")
    if menu.get_attribute("open") is None:
        menu.locator("summary").click()
    menu.get_by_role("button", name="With the same arguments").click()
    page.wait_for_url(lambda url: "/jobs/" in url and job.id not in url)
    made = apart(_of_queue, shop, "twice")
    assert len(made) == (2 if page.url == first else 3), "the same form of the history, or a new page"
    for id in made:
        apart(shop.app.job(id).cancel)


def _of_queue(shop: Shop, queue: str) -> list[str]:
    query = "SELECT id FROM {jobs} WHERE queue = :queue"
    return [str(id) for (id,) in shop.app.database.read(lambda tx: tx.rows(query, queue=queue))]


def _stands(look: Callable[[], str], wanted: str) -> None:
    eventually(lambda: apart(look) == wanted)


def test_acts_on_schedules(look: Pages, shop: Shop) -> None:
    page = look("/schedules/new")
    page.get_by_label("Task or pipeline").select_option("report.render")
    page.get_by_label("Name", exact=True).fill("by-hand")
    page.get_by_label("Cron", exact=True).fill("30 4 * * *")
    page.get_by_label("Arguments").fill('["eu"]')
    page.locator("main form button").last.click()
    told(page, "by-hand")
    page.goto(f"{look.site}/schedule?name=by-hand")
    page.get_by_role("button", name="Trigger now").click()
    expect(page.locator("#notice")).to_be_visible()
    in_menu(page, "Pause").locator("button").first.click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    page.get_by_role("button", name="Delete").click()
    say_yes(page)
    page.wait_for_url("**/schedules")
    assert "by-hand" not in [one.name for one in apart(shop.app.schedules)]
    assert {"create_schedule", "pause", "delete"} & {one.act for one in apart(shop.app.audit, by="ann")}


def test_a_group_of_failures_is_discarded_whole(look: Pages, shop: Shop) -> None:
    page = look("/failures")
    page.locator(".card", has_text="order.pack").get_by_role("button", name="Discard all").click()
    say_yes(page)
    expect(page.locator(".card", has_text="order.pack")).to_have_count(0)
    assert len(apart(shop.app.dead_letters, task="order.pack")) == 0
