"""`penstock dashboard`: a link that works once, a page in the browser, and an end that no open page holds up."""

from __future__ import annotations

import re
from pathlib import Path
from signal import SIGINT
from time import monotonic

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")
pytest.importorskip("jinja2", reason="Jinja2 is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

from playwright.sync_api import Browser, expect

from tests.browser.fixtures import PATIENCE, Shop
from tests.waiting import eventually
from tests.web import ask
from tests.workers import workers

expect.set_options(timeout=PATIENCE)
MOST_TO_STOP = 10.0


@pytest.mark.process
def test_the_local_server(browser: Browser, shop: Shop, tmp_path: Path) -> None:
    with workers(tmp_path, shop.url, print) as start:
        server = start.python("-m", "penstock", "dashboard", "tests.browser.shop:app", "--port", "0")
        link = eventually(lambda: re.findall(r"http://\S+", server.log))[0]
        site = link.rpartition("/login")[0]
        assert ask(f"{site}/jobs").status == 401
        context = browser.new_context()
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto(link)
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        page.get_by_role("link", name="Jobs", exact=True).first.click()
        expect(page.locator("main tbody tr").first).to_be_visible()
        assert ask(link).status == 401, "the link works once"
        began = monotonic()
        server.send(SIGINT)
        assert server.wait() == 0
        assert monotonic() - began < MOST_TO_STOP
        context.close()
