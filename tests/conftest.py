"""Databases, apps and worker processes for all tests.

    database_url            a fresh database with the schema in it; the test runs once per kind of database
    app, make_app           an app on it; `make_app(payload_limit=100)` for one with other settings
    worker_process          starts real workers on it: `worker_process("--processes", "2", module="...")`
    empty_database_url      the same without the schema, for tests of the migrations

    sqlite_url, postgres_url, mariadb_url       one kind only
    postgres_server, mariadb_server             a server of the test's own, to stop, restart and cut off
    galera                                      a Galera cluster of two nodes, for a module of tests
    app_on(url), workers_on(url)                an app, or workers, on one of those

`--database sqlite,postgres` narrows the kinds. A test marked `one_database` is about processes and signals; what it
needs of the database is tested on every kind elsewhere.
"""

import gc
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import hypothesis
import pytest

from penstock.database.database import Database
from penstock.runtime.liveness import host_identity
from penstock.schema.version import ensure
from penstock.settings import Settings
from tests.databases import KINDS, Databases
from tests.ordering import dealt
from tests.servers import pristine
from tests.servers.child import die_with_parent
from tests.servers.errors import Unavailable
from tests.servers.galera import Galera
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres
from tests.servers.shared import SharedServers, owned_session
from tests.workers import Workers, workers

if TYPE_CHECKING:
    from penstock import Penstock

T = TypeVar("T")
Migrated: TypeAlias = Callable[[str], AbstractContextManager[str]]

os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")
"""pytest-xdist sets it, and readline does behind Python's back: commands would take it for the wish of a person to have
tables of that width."""

SINGLE_KINDS = {f"{kind}_{what}": kind for kind in KINDS for what in ("url", "server")}
SESSION = pytest.StashKey[Path]()
SESSION_END = pytest.StashKey[ExitStack]()

# How long an example takes says something about the machine, not about the code. In CI, too, cases are fresh ones:
# Hypothesis's own profile there, which this one would inherit from, draws the same at every run.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=False)
hypothesis.settings.load_profile("suite")


# The session: one folder, owned by the pytest that the user started, known to its workers.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--profile", default="", help="the setting of that name, for every app and worker; PostgreSQL only"
    )
    parser.addoption("--database", default=",".join(KINDS), help="kinds to test, with commas between")


def pytest_configure(config: pytest.Config) -> None:
    if profile := config.getoption("--profile"):
        os.environ["PENSTOCK_PROFILE"] = profile
    _chosen_kinds(config)
    _hear_interrupts()
    _take_turns()
    gc.disable()  # until all tests are collected: nothing of that is garbage, and looking takes a third of the time
    if hasattr(config, "workerinput"):
        config.stash[SESSION] = Path(config.workerinput["session"])
        die_with_parent(os.getppid(), signal.SIGKILL)
        host_identity.SHARED_MEMORY = pristine.FOLDER = config.stash[SESSION]
        return
    config.stash[SESSION_END] = ExitStack()
    config.stash[SESSION] = config.stash[SESSION_END].enter_context(owned_session())
    host_identity.SHARED_MEMORY = pristine.FOLDER = config.stash[SESSION]


def _hear_interrupts() -> None:
    """A shell has the programs that it starts in the background ignore SIGINT; commands that tests start do not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _take_turns() -> None:
    """Leave a processor to others at the end of a slice of time, not whenever one of them wakes up.

    Many processes for few processors would otherwise find their caches cold all the time. What tests start inherits it.
    """
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def pytest_sessionstart(session: pytest.Session) -> None:
    """pytest-rerunfailures writes twice and then reads: each test would wait 40 ms for the answer to the first."""
    connection = getattr(getattr(session.config, "failures_db", None), "sock", None)
    if hasattr(session.config, "workerinput") and connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    config = node.config  # type: ignore[attr-defined]  # xdist has no types
    given = {"session": str(config.stash[SESSION]), "steals": config.getoption("dist") == "worksteal"}
    node.workerinput.update(given)  # type: ignore[attr-defined]


def pytest_unconfigure(config: pytest.Config) -> None:
    if SESSION_END in config.stash:
        with config.stash[SESSION_END], closing(SharedServers(config.stash[SESSION])) as servers:
            Databases(servers, migrate).drop_templates()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for kind, reason in SharedServers(config.stash[SESSION]).missing().items():
        terminalreporter.section(f"NOT TESTED on {kind}", red=True, bold=True)
        terminalreporter.write_line(reason)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database_kind" in metafunc.fixturenames:
        kinds = _chosen_kinds(metafunc.config)
        if metafunc.definition.get_closest_marker("one_database"):
            kinds = ["postgres"] if "postgres" in kinds else kinds[:1]
        metafunc.parametrize("database_kind", kinds)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = _chosen_kinds(config)
    others = {name for name, kind in SINGLE_KINDS.items() if kind not in chosen}
    deselected = [item for item in items if others.intersection(getattr(item, "fixturenames", ()))]
    if config.getoption("--profile"):
        # What is not the same on every database may well be about something that the profile does without.
        deselected += [
            item
            for item in items
            if "database_kind" not in getattr(item, "fixturenames", ())
            or item.get_closest_marker("standard_profile")
        ]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]
    if hasattr(config, "workerinput") and config.workerinput["steals"]:
        items[:] = dealt(items, int(config.workerinput["workercount"]))


def pytest_collection_finish() -> None:
    """Thousands of tests are there to stay: the collector need not look again and again whether one is garbage.

    By itself it looks after every 700 objects, which takes 3 % of the time of all tests.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Nor at what a module of tests leaves behind; and a supervisor, or a simulation, has let it look at everything."""
    if nextitem is None or nextitem.path != item.path:
        _keep_for_good()


def _keep_for_good() -> None:
    gc.collect()
    gc.freeze()


def _chosen_kinds(config: pytest.Config) -> list[str]:
    kinds = [kind.strip() for kind in config.getoption("--database").split(",")]
    if config.getoption("--profile"):
        kinds = ["postgres"]
    if unknown := set(kinds) - set(KINDS):
        raise pytest.UsageError(f"--database: {', '.join(unknown)}? There are {', '.join(KINDS)}.")
    return kinds


# Databases


def migrate(url: str) -> None:
    database = Database(Settings.load(database_url=url, environ={}))
    ensure(database, upgrade=True)
    database.close()


@pytest.fixture(scope="session")
def databases(pytestconfig: pytest.Config) -> Iterator[Databases]:
    with (
        closing(SharedServers(pytestconfig.stash[SESSION])) as servers,
        closing(Databases(servers, migrate)) as made,
    ):
        yield made


@pytest.fixture
def migrated(request: pytest.FixtureRequest, databases: Databases) -> Migrated:
    """A database of that kind for this test; it may have served another one, unless this test starts processes."""
    own = any(request.node.get_closest_marker(mark) for mark in ("process", "own_database"))
    return lambda kind: databases.migrated(kind, shared=not own)


@pytest.fixture
def database_url(migrated: Migrated, database_kind: str) -> Iterator[str]:
    yield from _had(migrated(database_kind))


@pytest.fixture
def empty_database_url(databases: Databases, database_kind: str) -> Iterator[str]:
    with ExitStack() as stack:
        yield had(lambda: stack.enter_context(databases.empty(database_kind)))


@pytest.fixture
def sqlite_url(migrated: Migrated) -> Iterator[str]:
    yield from _had(migrated("sqlite"))


@pytest.fixture
def postgres_url(migrated: Migrated) -> Iterator[str]:
    yield from _had(migrated("postgres"))


@pytest.fixture
def mariadb_url(migrated: Migrated) -> Iterator[str]:
    yield from _had(migrated("mariadb"))


@pytest.fixture
def postgres_server(pytestconfig: pytest.Config) -> Iterator[Postgres]:
    with ExitStack() as stack:
        folder = pytestconfig.stash[SESSION] / f"own-{os.getpid()}-postgres"
        yield had(lambda: stack.enter_context(Postgres(folder)))


@pytest.fixture
def mariadb_server(pytestconfig: pytest.Config) -> Iterator[Mariadb]:
    with ExitStack() as stack:
        folder = pytestconfig.stash[SESSION] / f"own-{os.getpid()}-mariadb"
        yield had(lambda: stack.enter_context(Mariadb(folder)))


@pytest.fixture(scope="module")
def galera(pytestconfig: pytest.Config) -> Iterator[Galera]:
    """A cluster of two nodes that can both be written to."""
    if "mariadb" not in _chosen_kinds(pytestconfig):
        pytest.skip("Galera is MariaDB, which is not among the chosen databases")
    folder = pytestconfig.stash[SESSION] / f"own-{os.getpid()}-galera"
    folder.mkdir(mode=0o711)
    cluster = had(lambda: Galera(folder, 2))
    try:
        had(cluster.start)
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _had(database: AbstractContextManager[str]) -> Iterator[str]:
    with ExitStack() as stack:
        yield had(lambda: stack.enter_context(database))


def had(get: Callable[[], T]) -> T:
    """What was asked for. Without its server a test is skipped, and the summary says so; in CI it fails."""
    try:
        return get()
    except Unavailable as missing:
        if os.environ.get("CI", "") not in ("", "0", "false"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


# Apps and workers


@pytest.fixture
def app_on() -> Iterator[Callable[..., "Penstock"]]:
    """`app_on(url, **settings)`: an app on any database, closed at the end."""
    with ExitStack() as stack:

        def make(url: str, **settings: object) -> "Penstock":
            made: Penstock = import_module("penstock").Penstock(url, **settings)
            stack.callback(made.close)
            return made

        yield make


# The database comes first: what came last ends first, and a database that nobody is connected to is dropped at once.


@pytest.fixture
def make_app(database_url: str, app_on: Callable[..., "Penstock"]) -> Callable[..., "Penstock"]:
    return partial(app_on, database_url)


@pytest.fixture
def app(make_app: Callable[..., "Penstock"]) -> "Penstock":
    return make_app()


@pytest.fixture
def workers_on(tmp_path: Path) -> Iterator[Callable[[str], Workers]]:
    """`workers_on(url)`: starts workers on any database; their logs are shown when the test fails."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(workers(tmp_path, url, print))


@pytest.fixture
def worker_process(database_url: str, workers_on: Callable[[str], Workers]) -> Workers:
    return workers_on(database_url)
