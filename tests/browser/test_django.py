"""The dashboard of a Django project, behind gunicorn and behind uvicorn: signed in by Django, acting, following."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import PATIENCE
from tests.django.test_failover import GUNICORN, MANAGE, UVICORN
from tests.django.test_projects import SHOP, needs_django_tasks, succeeded
from tests.integrations.servers import served, told
from tests.workers import workers

expect.set_options(timeout=PATIENCE)
USER = {"DJANGO_SUPERUSER_PASSWORD": "of-the-boss"}


@needs_django_tasks
@pytest.mark.process
def test_the_dashboard_of_a_django_project(browser: Browser, tmp_path: Path) -> None:
    for needed in ("gunicorn", "uvicorn"):
        pytest.importorskip(needed)
    url = f"sqlite:///{tmp_path}/shop.db"
    succeeded([MANAGE, "migrate", "--verbosity", "0"], tmp_path, SHOP, url)
    boss = ["createsuperuser", "--noinput", "--username", "boss", "--email", "boss@example.com"]
    succeeded([MANAGE, *boss], tmp_path, SHOP, url, USER)
    with workers(tmp_path, url, print) as start:
        for server in (GUNICORN, UVICORN):
            _, address = served(start, *server, home=SHOP)
            job = told(f"{address}/buy?item=tea")["job"]
            context = browser.new_context()
            context.set_default_timeout(PATIENCE)
            page = context.new_page()
            page.goto(f"{address}/jobs/jobs/{job}")
            page.get_by_label("Username").fill("boss")
            page.get_by_label("Password").fill(USER["DJANGO_SUPERUSER_PASSWORD"])
            page.get_by_role("button", name="Log in").click()
            status = page.locator(".title-line .badge")
            expect(status).to_have_text("ready")
            page.locator("details.menu", has_text="Cancel").locator("summary").click()
            page.get_by_role("button", name="Cancel the job").click()
            expect(page.locator("#notice")).to_contain_text("will end cancelled")
            expect(status).to_have_text("cancelled")
            page.goto(f"{address}/jobs/audit")
            expect(page.locator("tbody tr").first).to_contain_text("boss")
            page.goto(f"{address}/jobs/jobs")
            other = told(f"{address}/buy?item=milk")["job"]
            expect(page.locator(f'a[href="/jobs/jobs/{other}"]').first).to_be_visible()
            context.close()
