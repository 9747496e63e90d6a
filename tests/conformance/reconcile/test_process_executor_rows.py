"""runtime/reconcilers/row_order, reconcile/transfer: rows in processes of their own.

Actors: the worker with its lease, the handler's process, and another worker that may take the row. Crash points: the
handler's process dies, hangs past its timeout, or goes on after the lease is lost; each is decided by the worker,
which kills the process and writes through the row's token, or not at all.
"""

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from penstock.errors import DefinitionError
from penstock.runtime.worker import Worker
from penstock.testing import drain
from tests.conformance.embedded import beside_a_worker
from tests.waiting import until

MODULE = "tests.conformance.reconcile.foundry"
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")


@pytest.fixture
def foundry(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The module, with its app on the test's database, here and in every process that imports it."""
    monkeypatch.setenv("PENSTOCK_TEST_SHOP_URL", database_url)
    monkeypatch.setenv("PENSTOCK_TEST_FOLDER", str(tmp_path))
    sys.modules.pop(MODULE, None)
    module = importlib.import_module(MODULE)
    module.app.prepare()
    module.Base.metadata.create_all(module.app.database.engine)
    yield module
    module.app.close()
    sys.modules.pop(MODULE, None)


def add(foundry: Any, table: Any, *rows: dict[str, Any]) -> None:
    with foundry.app.database.engine.begin() as connection:
        connection.execute(insert(table), list(rows))


def engine(foundry: Any, id: int = 1) -> Any:
    with foundry.app.database.engine.begin() as connection:
        table = foundry.Engine.__table__
        return connection.execute(select(table).where(table.c.id == id)).one()


def values(foundry: Any, *columns: Any) -> list[tuple[Any, ...]]:
    with foundry.app.database.engine.begin() as connection:
        return [tuple(row) for row in connection.execute(select(*columns).order_by(columns[0]))]


def failures(foundry: Any) -> dict[str, str]:
    read = "SELECT reconciler, error_type, error FROM {row_failures}"
    found = foundry.app.database.read(lambda tx: tx.rows(read))
    return {reconciler: f"{kind}: {error}" for reconciler, kind, error in found}


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_rows_of_every_kind_are_visited_in_processes_of_their_own(foundry: Any) -> None:
    good = {"kind": "good", "note": str(os.getpid()), "tags": ["a"]}
    add(foundry, foundry.Engine, {"id": 1, **good}, {"id": 2, "kind": "idle", "note": None, "tags": None})
    add(foundry, foundry.Wheel, {"id": 1, "engine_id": 1}, {"id": 2, "engine_id": 1})
    add(foundry, foundry.Animal.__table__, {"id": 1, "kind": "animal"}, {"id": 2, "kind": "dog"})
    add(foundry, foundry.bolts, {"box": "eu", "number": 7, "state": "loose"})

    async def live(_: Worker) -> None:
        await until(lambda: engine(foundry).state == "done")
        await until(lambda: engine(foundry, 2).note == "asleep")
        await until(lambda: all(said for _, said in values(foundry, foundry.Animal.id, foundry.Animal.said)))
        await until(lambda: values(foundry, foundry.bolts.c.state) != [("loose",)])

    beside_a_worker(foundry.app, live, role="reconciler")
    assert failures(foundry) == {}
    done = engine(foundry)
    assert (done.note, done.size, done.tags) == ("Engine by turn", 2, ["a"])
    assert done.made_at == done.last_processed_at
    assert values(foundry, foundry.Wheel.id, foundry.Wheel.turns) == [(1, 1), (2, 1)]
    assert values(foundry, foundry.Remark.text) == [("engine 1",)]
    assert values(foundry, foundry.lines.c.text) == [("line 1",)]
    assert values(foundry, foundry.Animal.said) == [("Animal nothing",), ("Dog None",)]
    assert values(foundry, foundry.bolts.c.state) == [("eu 7 loose",)]
    assert {token for _, token in values(foundry, foundry.Wheel.id, foundry.Wheel.lock_token)} == {None}


def test_what_cannot_travel_is_the_error_of_its_row_and_says_what_to_do(foundry: Any) -> None:
    kinds = ("odd", "sealed", "sql", "far", "hand", "wrong")
    rows = [{"id": id, "kind": kind, "seal": None} for id, kind in enumerate(kinds, 1)]
    rows[1]["seal"] = "closed"
    add(foundry, foundry.Engine, *rows)

    async def live(_: Worker) -> None:
        await until(lambda: len(failures(foundry)) == len(kinds))

    beside_a_worker(foundry.app, live, role="reconciler")
    said = failures(foundry)
    pickled = 'executor="process" takes rows and results that can be pickled'
    for name, part in {
        "odd": f"cannot be sent back: a secret stays where it is. {pickled}",
        "sealed": f"cannot be sent to a process of its own: a secret stays where it is. {pickled}",
        "sql": 'size: a handler with executor="process" returns values, no SQL expressions',
        "far": "foundry_elsewhere: a handler with",
        "by_hand": "foundry_engines.state set on a row, which is not how it is written",
        "wrong": "a reconciler returns a dict, None or Snooze(seconds), not int",
    }.items():
        assert part in said[name], said[name]
    assert {state for _, state in values(foundry, foundry.Engine.id, foundry.Engine.state)} == {"new"}
    counts = values(foundry, foundry.Engine.id, foundry.Engine.process_attempts)
    assert all(attempts for _, attempts in counts)


def test_a_process_that_dies_counts_as_a_crash_until_the_row_is_given_up(
    foundry: Any, tmp_path: Path
) -> None:
    """At once, not when the lease is over: this worker knows. The row's other counts stay as they are."""
    add(foundry, foundry.Engine, {"id": 1, "kind": "die", "process_attempts": 2})

    async def live(_: Worker) -> None:
        await until(lambda: engine(foundry).state == "given up")

    beside_a_worker(foundry.app, live, role="reconciler")
    assert (tmp_path / "deaths").read_text().split() == ["0", "1"]
    row = engine(foundry)
    assert (row.size, row.process_attempts, row.process_crashes, row.lock_token) == (1, 0, 0, None)
    assert failures(foundry)["die"].startswith("Crashed: the process of this handler ended by itself")


def test_a_process_that_hangs_is_killed_by_its_timeout(foundry: Any, tmp_path: Path) -> None:
    add(foundry, foundry.Engine, {"id": 1, "kind": "hang"})

    async def live(_: Worker) -> None:
        await until(lambda: engine(foundry).state == "late")

    beside_a_worker(foundry.app, live, role="reconciler")
    assert "no end after 0.3 s (timeout)" in failures(foundry)["hang"]
    assert is_gone(int((tmp_path / "hang").read_text()))


def test_what_a_process_has_returned_for_a_row_that_is_lost_is_undone(foundry: Any) -> None:
    """The worker calls `on_lost`, not the handler's process, and with the values as middleware has left them."""
    add(foundry, foundry.Engine, {"id": 1, "kind": "sold"})

    async def live(_: Worker) -> None:
        await until(lambda: foundry.regretted)

    beside_a_worker(foundry.app, live, role="reconciler")
    assert foundry.regretted == [(1, {"state": "sold", "note": "for nothing by sell"})]
    row = engine(foundry)
    assert (row.state, row.note, row.lock_token) == ("new", None, 7)
    assert failures(foundry) == {}


def test_a_process_whose_row_is_lost_is_killed_and_writes_nothing(foundry: Any, tmp_path: Path) -> None:
    add(foundry, foundry.Engine, {"id": 1, "kind": "wait"})

    async def live(_: Worker) -> None:
        await until((tmp_path / "wait").exists)
        with foundry.app.database.engine.begin() as connection:
            table = foundry.Engine.__table__
            connection.execute(table.update().values(lock_token=7, state="theirs"))
        await until(lambda: is_gone(int((tmp_path / "wait").read_text())))
        await until(lambda: bool(foundry.regretted))

    beside_a_worker(foundry.app, live, role="reconciler")
    assert foundry.regretted == [(1, None)]
    assert (engine(foundry).lock_token, engine(foundry).state) == (7, "theirs")


def test_a_stop_kills_the_process_and_gives_its_row_back(foundry: Any, tmp_path: Path) -> None:
    add(foundry, foundry.Engine, {"id": 1, "kind": "wait"})

    async def live(worker: Worker) -> None:
        await until((tmp_path / "wait").exists)
        await worker.stop(0)

    beside_a_worker(foundry.app, live, role="reconciler")
    assert is_gone(int((tmp_path / "wait").read_text()))
    row = engine(foundry)
    assert (row.lock_token, row.process_attempts, row.process_crashes) == (None, 0, 0)


@pytest.mark.one_database
def test_jobs_and_rows_share_the_processes_of_a_worker(foundry: Any, tmp_path: Path) -> None:
    """`executor_processes` is one cap: with one process that hangs, the row of another reconciler waits for it."""
    add(
        foundry,
        foundry.Engine,
        {"id": 1, "kind": "wait"},
        {"id": 2, "kind": "wait"},
        {"id": 3, "kind": "idle"},
    )

    async def live(worker: Worker) -> None:
        await until(lambda: len(worker.executors.processes._running) == 2)
        crews = [runner.dispatcher for runner in worker.rows.runners.values()]
        await until(lambda: sum(crew.busy for crew in crews) == 3)
        assert len(worker.executors.processes._inbox) == 1
        assert len(worker.executors.processes._leaders) == 2
        worker.hurried = True

    beside_a_worker(foundry.app, live, role="reconciler")
    assert engine(foundry, 3).lock_token is None, "given back, although it had not begun"


@pytest.mark.one_database
def test_a_process_that_cannot_import_the_application_spends_nothing(
    foundry: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its rows are given back, and no more are claimed for a pause that grows; each pause is told once."""
    monkeypatch.setattr("penstock.runtime.executors.start_pause.REJECTED_DELAY", 0.2)
    (tmp_path / "no import").touch()
    add(foundry, foundry.Engine, {"id": 1, "kind": "good", "note": str(os.getpid()), "tags": ["a"]})

    def pauses() -> list[str]:
        return [text for text in caplog.messages if "could not import the application" in text]

    async def live(_: Worker) -> None:
        await until(lambda: len(pauses()) >= 3)
        (tmp_path / "no import").unlink()
        await until(lambda: engine(foundry).state == "done")

    beside_a_worker(foundry.app, live, role="reconciler")
    assert "the next try is in 0.8 s (pause 3 in a row)" in pauses()[2]
    assert len(pauses()) <= 4
    assert failures(foundry) == {}


@pytest.mark.one_database
def test_a_reconciler_that_no_fresh_process_finds_says_so(foundry: Any) -> None:
    def local(item: Any) -> None: ...

    foundry.app.reconciler(foundry.Engine, where=foundry.of("late"), executor="process", name="late")(local)
    add(foundry, foundry.Engine, {"id": 1, "kind": "late"})

    async def live(_: Worker) -> None:
        await until(lambda: bool(failures(foundry)))

    beside_a_worker(foundry.app, live, role="reconciler")
    assert (
        "declares none of that name. Declare it at the top of the module of its function"
        in failures(foundry)["late"]
    )


@pytest.mark.one_database
def test_a_drain_visits_them_in_the_process_of_the_test(foundry: Any) -> None:
    add(foundry, foundry.Engine, {"id": 1, "kind": "sql"})
    drain(foundry.app)
    assert engine(foundry).size == 2


@pytest.mark.one_database
def test_executors_are_checked_when_a_reconciler_is_declared(foundry: Any) -> None:
    declare = foundry.app.reconciler
    with pytest.raises(DefinitionError, match=r"executor='thraed'"):
        declare(foundry.Engine, executor="thraed")(foundry.later)
    with pytest.raises(DefinitionError, match=r'executor="async" is for an `async def`'):
        declare(foundry.Engine, executor="async")(foundry.later)
    assert declare(foundry.Engine, executor="thread", name="t")(foundry.turn.function).executor == "thread"
