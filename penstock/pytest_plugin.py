"""The pytest plugin: an app on an empty test database, and the test kit bound to it, as fixtures.

Nothing happens to a test that asks for none of them. The app is named in pytest's configuration (`penstock_app =
"shop:app"`), or made by a fixture `penstock_app` of the project. A named app is put on the test database before its
module is imported, each process of pytest-xdist on tables of its own, and it is refused if it is on another one: its
tables are emptied before each test.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from penstock.values.lazy_import import Lazy

if TYPE_CHECKING:
    from penstock import testing
    from penstock.app import Penstock
    from penstock.cli import load_app
    from penstock.schema import reset
    from penstock.testing import Travel
else:
    testing, reset = Lazy("penstock.testing"), Lazy("penstock.schema.reset")
    load_app = Lazy("penstock.cli.load_app")

APP, DATABASE = "penstock_app", "penstock_database"
MEMORY = "sqlite://"
MARKER = "penstock(inline=False, raises=False): how the fixtures of Penstock run the work of this test"
OPTIONS = frozenset({"inline", "raises"})
WORKER = "PYTEST_XDIST_WORKER"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(APP, "the app that the fixture penstock_app gives, such as shop:app")
    parser.addini(DATABASE, f"the URL of the test database; default: {MEMORY}, in memory", default=MEMORY)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Set the database URL before any module of the project is imported, so that its app uses the test database."""
    if early_config.getini(APP):
        os.environ["PENSTOCK_DATABASE_URL"] = early_config.getini(DATABASE)
        if worker := os.environ.get(WORKER):
            os.environ["PENSTOCK_TABLE_PREFIX"] = f"penstock_{worker}_"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def penstock_app(request: pytest.FixtureRequest) -> Iterator[Penstock]:
    """The app that pytest's configuration names, on an empty database; its clock is set back after the test."""
    target = request.config.getini(APP)
    if not target:
        raise pytest.UsageError(
            f'which app? Name it in pytest\'s configuration ({APP} = "shop:app"), or write a fixture {APP}'
        )
    app = load_app.load_app(target)
    _refuse_other_database(app, request.config.getini(DATABASE))
    app.migrate()
    reset.as_migrated(app.database)
    yield app
    app.database.shift_clock(0)
    if not app.database.dialect.in_memory:
        app.close()


def _refuse_other_database(app: Penstock, url: str) -> None:
    if app.settings.database_url != url:
        raise pytest.UsageError(
            f"the app is on {app.settings.shown_url}, not on the test database ({DATABASE}), and its tables would be "
            "emptied. Make it without a URL, as Penstock(), or write a fixture penstock_app that makes one for tests"
        )


@pytest.fixture
def penstock_drain(request: pytest.FixtureRequest, penstock_app: Penstock) -> Callable[..., int]:
    """`drain` of this app: `penstock_drain(limit=1)`."""
    raises = _option(request, "raises")
    return lambda **options: testing.drain(penstock_app, **{"raises": raises, **options})


@pytest.fixture
def penstock_drain_async(request: pytest.FixtureRequest, penstock_app: Penstock) -> Callable[..., Any]:
    """`drain_async` of this app: `await penstock_drain_async()`, under pytest-asyncio or anyio."""
    raises = _option(request, "raises")
    return lambda **options: testing.drain_async(penstock_app, **{"raises": raises, **options})


@pytest.fixture
def penstock_inline(request: pytest.FixtureRequest, penstock_app: Penstock) -> Iterator[None]:
    """During this test an enqueue runs the job before it returns."""
    with testing.inline(penstock_app, raises=_option(request, "raises")):
        yield


@pytest.fixture
def penstock_travel(penstock_app: Penstock) -> Iterator[Callable[[Any], Travel]]:
    """`travel` of this app: `penstock_travel(3600)`; at the end of the test it is back."""
    with ExitStack() as travels:

        def travel(seconds: Any) -> Travel:
            return travels.enter_context(testing.travel(penstock_app, seconds))

        yield travel


@pytest.fixture
def penstock_enqueued(penstock_app: Penstock) -> Callable[..., Any]:
    """`assert_enqueued` of this app: `penstock_enqueued(send_receipt, 17)`."""
    return lambda *wanted, **options: testing.assert_enqueued(penstock_app, *wanted, **options)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test marked `penstock(inline=True)` asks for that fixture; a wrong option is refused before any test runs."""
    for item in items:
        for marker in item.iter_markers("penstock"):
            if marker.args or (unknown := marker.kwargs.keys() - OPTIONS):
                wrong = ", ".join(sorted(unknown)) if not marker.args else "arguments without a name"
                raise pytest.UsageError(
                    f"{item.nodeid}: the marker penstock takes inline= and raises=, not {wrong}"
                )
            fixtures = getattr(item, "fixturenames", None)
            if marker.kwargs.get("inline") and fixtures is not None and "penstock_inline" not in fixtures:
                fixtures.append("penstock_inline")


def _option(request: pytest.FixtureRequest, option: str) -> bool:
    marker = request.node.get_closest_marker("penstock")
    return bool(marker is not None and marker.kwargs.get(option))
