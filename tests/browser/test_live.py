"""Pages follow the database while workers run and are killed; and they work without a script, and without a mouse."""

from __future__ import annotations

import os
from pathlib import Path
from signal import SIGKILL

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")
pytest.importorskip("jinja2", reason="Jinja2 is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

from playwright.sync_api import expect

from tests.browser.fixtures import PATIENCE, Pages, Shop, apart
from tests.waiting import eventually
from tests.workers import workers

expect.set_options(timeout=PATIENCE)


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


def test_a_list_follows_the_database(look: Pages, shop: Shop) -> None:
    page = look("/jobs?task=text.echo")
    job = apart(shop.module.echo.options(delay=3600).enqueue, "hello")
    row = page.locator(f'a[href$="/jobs/{job.id}"]').first
    expect(row).to_be_visible()
    apart(job.cancel)
    eventually(lambda: "cancelled" in row.locator("xpath=ancestor::tr").inner_text())
