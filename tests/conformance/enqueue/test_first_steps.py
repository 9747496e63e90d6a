"""errors: mistakes of a new user are refused with a message that names them, or logged where users look."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import penstock
from penstock import Penstock, Reconcilable
from penstock.errors import ConfigurationError, DefinitionError, PenstockError
from penstock.reconcile.events import RowSettled
from penstock.telemetry import logs, messages
from penstock.telemetry.events import JobsEnqueued, RunsTriggered, Stream, TroubleBegan, TroubleEnded
from penstock.telemetry.metrics import Metrics
from penstock.testing import drain
from penstock.testing.drain_rows import ManualReconciler
from tests.databases import Databases

MakeApp = Callable[..., Penstock]


def test_a_result_is_not_waited_for_on_the_loop_of_the_worker(app: Penstock) -> None:
    hi = app.task(name="hi")(lambda: "hi")

    @app.task(name="asks")
    async def asks() -> str:
        return str(hi.enqueue().result(timeout=20))

    async def main() -> None:
        async with app.worker():
            job = hi.enqueue()
            with pytest.raises(
                PenstockError, match=r"event loop on which this app's worker runs.*result_async"
            ):
                job.result()
            with pytest.raises(PenstockError, match="result_async"):
                app.flow("p").start(hi).trigger().result(timeout=20)
            assert await job.result_async(timeout=20) == "hi"
            assert await asyncio.to_thread(job.result, 20) == "hi", "a thread may wait"
        assert job.result(timeout=20) == "hi", "the worker has stopped"

    asyncio.run(main())
    assert hi.enqueue().id
    drain(app)


SHOP = """
from penstock import Penstock
app = Penstock("sqlite://")


@app.task
def send(n: int) -> str:
    return "first"
"""
SECOND = """

@app.task
def send(n: int) -> str:
    return "second"
"""


def load(file: Path, text: str, into: ModuleType | None = None) -> ModuleType:
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = into or importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("options", ["", '(name="send")'])
def test_two_functions_of_one_name_in_a_module_are_refused(tmp_path: Path, options: str) -> None:
    both = (SHOP + SECOND).replace("@app.task", f"@app.task{options}")
    with pytest.raises(DefinitionError, match="two tasks named"):
        load(tmp_path / "two.py", both)


def test_a_module_that_is_changed_and_loaded_again_is_not(tmp_path: Path) -> None:
    """As by a reloader: the function stands in another line now, and is the same one."""
    file = tmp_path / "again.py"
    first = load(file, SHOP)
    changed = SHOP.replace('app = Penstock("sqlite://")', "# one line more" + chr(10)).replace(
        "first", "again"
    )
    load(file, changed, into=first)
    assert first.app.tasks["again.send"].function(1) == "again"


def test_what_is_enqueued_with_the_callers_connection_is_counted(app: Penstock) -> None:
    seen: list[Any] = []
    metrics = Metrics(app.events)
    app.events.on(JobsEnqueued, seen.append)
    app.events.on(RunsTriggered, seen.append)
    task = app.task(name="t")(lambda n: n)

    @app.pipeline(name="p")
    def p(n: int) -> Any:
        return task(n)

    with app.database.engine.begin() as connection:
        task.options(connection=connection).enqueue(1)
        p.options(connection=connection).trigger(1)
    task.enqueue(2)
    p.options(key="once").trigger(2)
    p.options(key="once").trigger(2)
    assert seen == [JobsEnqueued("t", "default", 1), RunsTriggered("p", 1)] * 2
    lines = metrics.text().splitlines()
    assert 'penstock_jobs_enqueued_total{queue="default",task="t"} 2' in lines
    assert 'penstock_runs_triggered_total{pipeline="p"} 2' in lines


def test_steps_of_runs_are_not_among_the_jobs_enqueued(app: Penstock) -> None:
    """No caller has enqueued them; their ends are counted, as those of all jobs."""
    metrics = Metrics(app.events)
    task = app.task(name="t")(lambda n: n)

    @app.pipeline(name="p")
    def p(n: int) -> Any:
        return task(task(n))

    p.trigger(1)
    drain(app)
    lines = metrics.text().splitlines()
    assert not any(line.startswith("penstock_jobs_enqueued_total{") for line in lines)
    assert 'penstock_jobs_ended_total{queue="default",status="succeeded",task="t"} 2' in lines
    (meaning,) = [line for line in lines if line.startswith("# HELP penstock_jobs_enqueued_total")]
    assert "steps of runs are not counted" in meaning


def test_the_tables_are_made_without_a_word_in_the_applications_log(empty_database_url: str) -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    root = logging.getLogger()
    before = root.level, logging.getLogger("alembic").level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.getLogger("alembic").setLevel(logging.NOTSET)
    try:
        app = Penstock(empty_database_url)
        app.migrate()
        app.close()
        logging.getLogger("alembic.runtime.migration").info("of others")
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        logging.getLogger("alembic").setLevel(before[1])
    assert out.getvalue().splitlines() == ["of others"]


@pytest.mark.one_database
def test_nor_does_the_first_import_of_what_makes_them_say_one(sqlite_url: str) -> None:
    program = f"""
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
from penstock import Penstock
with Penstock({sqlite_url!r}) as app:
    app.migrate()
    from penstock.schema.migrate import operations
    operations(dialect_name="sqlite")
logging.getLogger("alembic.runtime.plugins").info("of others")
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert [line for line in told.splitlines() if "alembic" in line] == [
        "INFO:alembic.runtime.plugins:of others"
    ]


@pytest.fixture
def other(databases: Databases, database_kind: str, tmp_path: Path, app_on: MakeApp) -> Iterator[Penstock]:
    """An app on another database of the same kind."""
    with databases.migrated(database_kind) as url:
        made = app_on(url)
        yield made
        made.close()


@pytest.mark.parametrize("raw", [False, True])
def test_a_connection_to_another_database_is_refused(app: Penstock, other: Penstock, raw: bool) -> None:
    task = app.task(name="t")(lambda: None)
    flow = app.flow("p").start(task)
    for place in (other, app):
        with place.database.engine.begin() as connection:
            given = connection.connection.driver_connection if raw else connection
            for write in (task.options(connection=given).enqueue, flow.options(connection=given).trigger):
                if place is app:
                    write()
                    continue
                with pytest.raises(ConfigurationError, match="leads to the database .*, but the app's is"):
                    write()
    assert drain(app) == 2
    assert drain(other) == 0


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(penstock.__file__).parent / "py.typed").exists()


def test_the_words_of_reconcilers_are_heard_by_logs_that_began_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their events come with the first reconciler, and that may be after the logs were set up."""
    monkeypatch.setattr(
        messages, "WORDING", {k: v for k, v in messages.WORDING.items() if k is not RowSettled}
    )
    monkeypatch.setattr(logs, "WORDING", messages.WORDING)
    out = io.StringIO()
    logger = logging.Logger("penstock.test", logging.INFO)
    logger.addHandler(logging.StreamHandler(out))
    stream = Stream()
    stop = logs.attach(stream, logger)
    messages.word(RowSettled, logging.WARNING, lambda event: f"{event.row}: {event.error}")
    told = RowSettled("visit", "volumes", "1", "errored", 0.1, "ValueError: card declined")
    stream.emit(told)
    stop()
    stream.emit(told)
    assert out.getvalue() == "1: ValueError: card declined\n"


def test_a_handler_of_rows_that_raises_is_logged(database_url: str) -> None:
    """In a process of its own: there nothing of reconcilers was imported before."""
    told = subprocess.run(
        [sys.executable, "-c", DECLINED, database_url], capture_output=True, text=True, timeout=60, check=True
    )
    assert "WARNING rows_of_a_test 1 exhausted by handle" in told.stdout
    assert "ValueError: card declined" in told.stdout


DECLINED = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(message)s")
from penstock import Penstock
from penstock.telemetry import logs
app = Penstock(sys.argv[1])
logs.attach(app.events)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, Session
from penstock import Reconcilable
from penstock.testing import drain
from penstock.testing.drain_rows import ManualReconciler as RowHand
class Base(DeclarativeBase): ...
class Row(Base, Reconcilable):
    __tablename__ = "rows_of_a_test"
    id: Mapped[int] = mapped_column(primary_key=True)
@app.reconciler(Row, name="handle", max_attempts=1, on_exhausted=lambda item: {})
def handle(item):
    raise ValueError("card declined")
Base.metadata.create_all(app.database.engine)
with Session(app.database.engine) as s, s.begin(): s.add(Row(id=1))
drain(app)
app.close()
"""


def test_a_loop_that_is_told_to_stop_does_not_say_that_it_works_again(app: Penstock) -> None:
    told: list[Any] = []
    app.events.on(TroubleBegan, told.append)
    app.events.on(TroubleEnded, told.append)

    class Column(DeclarativeBase): ...

    class Lacking(Column, Reconcilable):
        __tablename__ = "lacking"
        id: Mapped[int] = mapped_column(primary_key=True)

    visit = app.reconciler(Lacking, name="r")(str)
    app.prepare()
    with app.database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE lacking (id INTEGER PRIMARY KEY)"))
    with ManualReconciler(app, visit) as hand:
        hand._room = 1
        hand.pump.guarded_turn()
        hand.pump.claiming = False  # as a worker says when it is to stop
        hand.pump.guarded_turn()
        assert [type(event) for event in told] == [TroubleBegan]
        with app.database.engine.begin() as connection:
            connection.execute(text("DROP TABLE lacking"))
        Column.metadata.create_all(app.database.engine)
        hand.pump.claiming = True
        hand.pump.guarded_turn()
        assert [type(event) for event in told] == [TroubleBegan, TroubleEnded]
