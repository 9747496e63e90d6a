"""Acts of operators by clicking: on all jobs of a filter, on queues, reconcilers, schedules and runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from playwright.sync_api import Page, expect
from sqlalchemy import select, update

from penstock import Penstock
from penstock.testing import drain
from tests.browser.clicks import done_by_ann, in_menu, say_yes, told
from tests.browser.conftest import PATIENCE, Pages, Shop, apart
from tests.waiting import eventually

expect.set_options(timeout=PATIENCE)
FAR = datetime(2099, 1, 1)


def _stands(look: Callable[[], object], wanted: object) -> None:
    eventually(lambda: apart(look) == wanted)


def test_everything_that_a_filter_matches(look: Pages, shop: Shop) -> None:
    jobs = apart(
        shop.module.charge.options(queue="bulk").enqueue_many, [(f"bulk-{n}", 770) for n in range(3)]
    )

    def statuses() -> set[str]:
        return {str(job.status) for job in jobs}

    apart(drain, shop.app, queues="bulk")
    page = look("/jobs?queue=bulk&status=failed")
    _all_that_match(page, "Retry all")
    _stands(statuses, {"available"})
    page.goto(f"{look.site}/jobs?queue=bulk")
    _all_that_match(page, "Cancel all")
    _stands(statuses, {"cancelled"})
    page.goto(f"{look.site}/jobs?queue=bulk&status=cancelled")
    _all_that_match(page, "Retry all")
    _stands(statuses, {"available"})
    apart(drain, shop.app, queues="bulk")
    page.goto(f"{look.site}/jobs?queue=bulk&status=failed")
    _all_that_match(page, "Discard all")
    ids = {job.id for job in jobs}
    eventually(lambda: not ids & {letter.id for letter in apart(shop.app.dead_letters, task="bank.charge")})
    for act in ("retry", "cancel", "discard"):
        done_by_ann(shop, jobs[2].id, act)


def _all_that_match(page: Page, words: str) -> None:
    page.get_by_role("button", name=words).click()
    say_yes(page)


def test_a_process_shows_its_stacks(look: Pages, shop: Shop) -> None:
    """The answer comes onto the page by itself."""
    page = look(f"/processes/{shop.process}")
    page.get_by_role("button", name="Ask for its stacks").click()
    told(page, "was asked for its stacks")
    stacks = page.get_by_role("region", name="Stacks")
    expect(stacks.locator("pre")).to_contain_text("penstock-heartbeat")
    expect(stacks.get_by_role("button", name="Ask again")).to_be_visible()
    done_by_ann(shop, shop.process, "ask_stacks")
    assert look(f"/processes/{shop.process}", rights="look").get_by_role("button", name="Ask").count() == 0


def test_queues_reconcilers_and_the_doctor(look: Pages, shop: Shop) -> None:
    job = apart(shop.module.render.options(queue="stopped").enqueue, "eu")
    page = look("/")
    row = page.locator("tr", has_text="stopped")
    row.get_by_role("button", name="Pause").click()
    say_yes(page)
    told(page, "queue stopped is paused")
    assert _paused_by(shop) == "ann"
    row.get_by_role("button", name="Resume").click()
    told(page, "queue stopped is resumed")
    assert _paused_by(shop) is None
    done_by_ann(shop, None, "pause_queue")
    done_by_ann(shop, None, "resume_queue")
    apart(job.cancel)

    page.goto(f"{look.site}/reconcilers")
    failing = page.locator("tr").filter(has=page.get_by_role("button", name="Visit now"))
    key = int(failing.first.locator(".main-line").inner_text())
    apart(_put_off, shop, key)
    page.locator(f'tr[data-key$="-{key}"]').get_by_role("button", name="Visit now").click()
    told(page, f"looks at row {key} now")
    assert apart(_next_visit, shop, key) < FAR
    page.get_by_role("button", name="Look now").first.click()
    told(page, "looks at volumes now")
    done_by_ann(shop, None, "hint")

    page.goto(f"{look.site}/doctor")
    page.get_by_role("button", name="Examine everything").click()
    told(page, "findings")
    expect(page.locator("main")).to_contain_text("dead letters")


def _paused_by(shop: Shop) -> str | None:
    return next(row.paused_by for row in apart(shop.app.queues) if row.queue == "stopped")


def _put_off(shop: Shop, key: int) -> None:
    table = shop.module.Volume.__table__
    with shop.app.database.engine.begin() as connection:
        connection.execute(update(table).where(table.c.id == key).values(next_process_at=FAR))


def _next_visit(shop: Shop, key: int) -> datetime:
    table = shop.module.Volume.__table__
    with shop.app.database.engine.begin() as connection:
        found: datetime | None = connection.scalar(select(table.c.next_process_at).where(table.c.id == key))
    assert found is not None
    return found.replace(tzinfo=None)


def test_a_schedule_is_backfilled_and_edited(look: Pages, shop: Shop) -> None:
    made = apart(shop.app.schedules.create, shop.module.render, "0 3 * * *", name="clicked", args=("eu",))
    page = look("/schedule?name=clicked")
    menu = in_menu(page, "Backfill")
    menu.get_by_label("From (UTC)").fill("2025-03-01T00:00")
    menu.get_by_label("Until (UTC)").fill("2025-03-03T12:00")
    menu.get_by_role("button", name="Backfill").click()
    told(page, "3 ticks will be fired")
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Cron", exact=True).fill("15 6 * * *")
    page.get_by_label("Starts (UTC)").fill("2030-01-01T00:00")
    page.get_by_label("Ends (UTC)").fill("2031-01-01T00:00")
    page.get_by_role("button", name="Save").click()
    told(page, "clicked fires at 06:15")
    found = apart(shop.app.schedule, "clicked")
    assert apart(lambda: (found.cron, found.start, found.end)) == (
        "15 6 * * *",
        datetime(2030, 1, 1, tzinfo=UTC),
        datetime(2031, 1, 1, tzinfo=UTC),
    )
    done_by_ann(shop, made.id, "backfill")
    done_by_ann(shop, made.id, "update")
    apart(found.delete)


def test_a_run_is_started_followed_mended_and_moved(look: Pages, shop: Shop) -> None:
    page = look("/pipeline?name=transcode")
    menu = in_menu(page, "Start a run")
    menu.get_by_label("Arguments").fill('["broken-click.mov"]')
    menu.get_by_role("button", name="Start").click()
    first = _opened(page)
    menu = in_menu(page, "Then")
    menu.get_by_label("Pipeline").select_option("transcode")
    menu.get_by_label("Arguments").fill('["sequel.mov"]')
    menu.get_by_role("button", name="Follow").click()
    told(page, "starts when this run has succeeded")
    apart(drain, shop.app, queues="default")
    in_menu(page, "Revive").get_by_role("button", name="Only retry subtitles").click()
    second = _opened(page, first)
    apart(drain, shop.app, queues="default")
    in_menu(page, "Revive").get_by_role("button", name="Revive", exact=True).click()
    third = _opened(page, second)
    assert apart(lambda: shop.app.run(third).revived_from) == apart(shop.app.run, second)
    for run, act in ((first, "trigger"), (first, "then"), (first, "retry_step"), (second, "revive")):
        done_by_ann(shop, run, act)
    page.goto(f"{look.site}/runs/{first}?step=subtitles")
    page.get_by_role("button", name="Fork here").click()
    expect(page.get_by_role("dialog")).to_contain_text("subtitles, ")
    say_yes(page)
    fourth = _opened(page, f"{first}?step=subtitles")
    told(page, "subtitles and what depends on it is done again in this run")
    assert apart(lambda: shop.app.run(fourth).forked_from) == apart(shop.app.run, first)
    done_by_ann(shop, first, "fork")
    for run in (third, fourth):
        apart(shop.app.run(run).cancel)

    older = apart(_of_yesterday, shop)
    page.goto(f"{look.site}/runs/{older}")
    page.get_by_role("button", name="Move to it").click()
    say_yes(page)
    told(page, "goes on with today's definition")
    done_by_ann(shop, older, "migrate")
    apart(drain, shop.app, queues="default")
    assert apart(lambda: shop.app.run(older).result()) == "s3://films/video+audio+subtitles"


def _opened(page: Page, before: str = "") -> str:
    """The run to whose page an act has led."""
    page.wait_for_url(lambda url: "/runs/" in url and not url.endswith(f"/{before}"))
    return page.url.rpartition("/")[2]


def _of_yesterday(shop: Shop) -> str:
    """A run of transcode as an older program declares it: without subtitles."""
    app = Penstock(database_url=shop.url)
    probe, video, audio, merge, upload = [
        app.task(name=f"film.{name}")(getattr(shop.module, name).function)
        for name in ("probe", "video", "audio", "merge", "upload")
    ]

    @app.pipeline(name="transcode")
    def transcode(film: str) -> Any:
        info = probe(film)
        return upload(merge(video(info), audio(info)))

    try:
        return transcode.trigger("older.mov").id
    finally:
        app.close()


def test_a_question_is_about_the_form_that_was_asked_about(look: Pages, shop: Shop) -> None:
    """Meanwhile the page stands still: what it is made of could become something else under the answer."""
    apart(shop.module.render.options(queue="asked").enqueue, "eu")
    asking, watching = look("/"), look("/")
    asking.locator("tr", has_text="asked").get_by_role("button", name="Pause").click()
    for queue in ("aardvark", "abacus", "abbot"):
        apart(shop.module.render.options(queue=queue).enqueue, "eu")
        expect(watching.locator("tr", has_text=queue)).to_be_visible()
    expect(asking.locator("tr", has_text="aardvark")).to_have_count(0)
    say_yes(asking)
    told(asking, "queue asked is paused")
    expect(asking.locator("tr", has_text="aardvark")).to_be_visible()
    apart(shop.app.resume_queue, "asked")
