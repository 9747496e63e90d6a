"""Pages follow the database within seconds, behind ASGI and behind WSGI, while workers run and are killed.

A tab that is hidden asks for nothing; one that is seen, and calm, asks for little. An open page holds up no server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL, SIGTERM
from time import monotonic

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import PATIENCE, Pages, Shop, apart, guard
from tests.integrations.servers import served
from tests.web import wsgi_server
from tests.workers import workers

expect.set_options(timeout=PATIENCE)
MOST_TO_STOP = 8.0
"""Seconds: a stream is ended after three."""


@pytest.mark.process
def test_a_page_follows_a_worker_that_runs_and_is_killed(look: Pages, shop: Shop, tmp_path: Path) -> None:
    job = apart(shop.module.encode.options(queue="live").enqueue, "live.mov", 60)
    page = look(f"/jobs/{job.id}")
    status = page.locator(".title-line .badge")
    expect(status).to_have_text("ready")
    with workers(tmp_path, shop.url, print) as start:
        worker = start("--queues", "live", "--processes", "1", target="tests.browser.shop:app")
        expect(status).to_have_text("running")
        for child in worker.children():
            os.kill(child, SIGKILL)
        expect(page.locator("details.attempt").filter(has_text="crashed")).to_have_count(1)
        expect(status).to_have_text("running")


SECONDS = 2.0
"""So long a change may take to the screen, on a machine with nothing else to do."""
PATIENT = 3
"""Times as long, on one that runs other tests."""


@pytest.fixture(scope="module", params=["asgi", "wsgi"])
def door(request: pytest.FixtureRequest, shop: Shop, site: str) -> Iterator[str]:
    """The address of the dashboard behind either kind of server."""
    if request.param == "asgi":
        yield site
        return
    with wsgi_server(shop.app.dashboard(guard=guard).wsgi) as address:
        yield address


def test_a_list_follows_the_database_within_two_seconds(look: Pages, shop: Shop, door: str) -> None:
    look.site = door
    page = look("/jobs?task=text.echo")
    began = monotonic()
    job = apart(shop.module.echo.options(delay=3600).enqueue, "hello")
    row = page.locator("tr", has=page.locator(f'a[href$="/jobs/{job.id}"]'))
    expect(row).to_be_visible()
    took = [monotonic() - began]
    began = monotonic()
    apart(job.cancel)
    expect(row.locator(".badge")).to_have_text("cancelled")
    took.append(monotonic() - began)
    assert min(took) < SECONDS, took
    assert max(took) < PATIENT * SECONDS, took


def test_a_hidden_tab_asks_for_nothing(look: Pages, door: str) -> None:
    look.site = door
    page = look("/settings")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)
    pages = [url for url in asked if url.endswith("/settings")]
    assert len(pages) <= 4, "once a second at most"
    if page.evaluate("() => document.body.dataset.events === undefined"):
        assert pages, "nothing tells it: it asks every second"
    page.evaluate(HIDE, True)
    page.wait_for_timeout(300)
    asked.clear()
    page.wait_for_timeout(1500)
    assert asked == []
    with page.expect_request("**/settings", timeout=5000):
        page.evaluate(HIDE, False)


HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
  document.dispatchEvent(new Event("visibilitychange"));
}"""
"""A browser without a screen shows all of its tabs; so the page is told what another browser would tell it."""


@pytest.mark.process
def test_an_open_page_holds_up_no_server(browser: Browser, shop: Shop, tmp_path: Path) -> None:
    with workers(tmp_path, shop.url, print) as start:
        arguments = ("-m", "uvicorn", "tests.browser.served:board", "--port", "0", "--lifespan", "on")
        server, address = served(start, *arguments, home=tmp_path)
        context = browser.new_context()
        page = context.new_page()
        with page.expect_request("**/events"):
            page.goto(f"{address}/jobs")
        expect(page.locator("#live")).to_have_text("Live")
        page.wait_for_timeout(500)
        began = monotonic()
        server.send(SIGTERM)
        server.wait()
        assert monotonic() - began < MOST_TO_STOP
        context.close()
