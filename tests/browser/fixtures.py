"""A browser, and the dashboard of one filled application.

    browser             Chromium, headless; started once for all tests here
    shop                the application with everything in it (`shop.filled` has ids), and its database
    site                its dashboard, served by uvicorn: an address
    look                opens pages: `page = look("/jobs", width=360, theme="dark")`

Nothing that a page logs as an error, no violation of its security policy and no answer of 500 is let pass: a page
that was opened by `look` is checked for them when the test ends.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, ParamSpec, TypeVar

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Response

from penstock import Penstock
from penstock.dashboard import Request, Viewer
from tests.browser.addresses import every_address
from tests.browser.filling import Filled, fill, staffed
from tests.conftest import had
from tests.databases import Databases
from tests.servers.chromium import chromium
from tests.web import asgi_server

P = ParamSpec("P")
T = TypeVar("T")
Theme = Literal["light", "dark"]
SHOP = "tests.browser.shop"
PATIENCE = 30_000
RIGHTS = "rights"
"""A cookie with the rights of the viewer; without it they are all."""


@dataclass(frozen=True, slots=True)
class Shop:
    module: ModuleType
    url: str
    filled: Filled
    process: str
    """A worker that is at work."""

    @property
    def addresses(self) -> list[str]:
        return every_address(self.filled, self.process)

    @property
    def app(self) -> Penstock:
        app: Penstock = self.module.app
        return app


@dataclass
class Pages:
    """Opens pages, each in a context of its own, and hears what goes wrong in them."""

    browser: Browser
    site: str
    stack: ExitStack
    problems: list[str] = field(default_factory=list)

    def __call__(
        self, path: str = "/", *, width: int = 1440, theme: Theme = "light", rights: str = "", **options: Any
    ) -> Page:
        context = self.context(width=width, theme=theme, rights=rights, **options)
        page = context.new_page()
        page.goto(self.site + path)
        return page

    def context(
        self, *, width: int = 1440, theme: Theme = "light", rights: str = "", **options: Any
    ) -> BrowserContext:
        context = self.browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, **options
        )
        self.stack.callback(context.close)
        context.set_default_timeout(PATIENCE)
        if rights:
            context.add_cookies([{"name": RIGHTS, "value": rights, "url": self.site}])
        context.on("console", self._console)
        context.on("weberror", lambda error: self.problems.append(f"error: {error.error}"))
        context.on("response", self._response)
        return context

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text} at {message.location}")

    def _response(self, response: Response) -> None:
        if response.status >= 500:
            self.problems.append(f"{response.status}: {response.url}")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with ExitStack() as stack:
        yield had(lambda: stack.enter_context(chromium()))


@pytest.fixture(scope="package")
def shop(
    databases: Databases, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    kinds = pytestconfig.getoption("--database").split(",")
    kind = "postgres" if "postgres" in kinds else kinds[0]
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("shop")
        url = had(lambda: stack.enter_context(databases.migrated(kind)))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setitem(os.environ, "PENSTOCK_DATABASE_URL", url)
        sys.modules.pop(SHOP, None)  # it holds an app on the database of its import
        module = import_module(SHOP)
        stack.callback(module.app.close)
        filled = apart(fill, module)
        process = stack.enter_context(staffed(module, url, folder))
        yield Shop(module, url, filled, process)


def apart(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call something in a thread of its own: in this one runs the event loop of the browser's driver."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function, *args, **kwargs).result()


def guard(request: Request) -> Viewer:
    rights = request.cookie(RIGHTS)
    return Viewer("ann", rights.split("+") if rights else "all")


@pytest.fixture(scope="package")
def site(shop: Shop) -> Iterator[str]:
    with asgi_server(shop.app.dashboard(guard=guard)) as address:
        yield address


@pytest.fixture
def look(browser: Browser, site: str) -> Iterator[Pages]:
    with ExitStack() as stack:
        pages = Pages(browser, site, stack)
        yield pages
    assert not pages.problems, "\n".join(pages.problems)
