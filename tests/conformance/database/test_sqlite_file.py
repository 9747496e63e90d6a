"""database/sqlite: the file of a SQLite database: where it is sought, and what happens to it under way."""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from penstock import Penstock
from penstock.errors import DatabaseUnavailable
from penstock.testing import drain
from tests.waiting import eventually
from tests.workers import Workers

AppOn = Callable[..., Penstock]

MODULE = """
from penstock import Penstock
app = Penstock(heartbeat_interval=0.3, reap_after=3)

@app.task(name="add")
def add(a: int, b: int) -> int:
    return a + b
"""


def test_a_relative_path_stays_what_it_was_when_the_app_was_made(
    app_on: AppOn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon changes its folder before its first job, and so may a handler of the user's."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    app = app_on("sqlite:///shop.db")

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    first = add.enqueue(1, 2)
    app.database.close()
    monkeypatch.chdir(elsewhere)
    second = add.enqueue(3, 4)
    drain(app)
    assert (first.result(), second.result()) == (3, 7)
    assert list(elsewhere.iterdir()) == []


@pytest.fixture
def shop(app_on: AppOn, tmp_path: Path) -> Penstock:
    app = app_on(f"sqlite:///{tmp_path}/shop.db")

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    return app


def test_nothing_is_enqueued_into_a_file_that_was_removed(shop: Penstock, tmp_path: Path) -> None:
    shop.tasks["add"].enqueue(1, 2)
    remove(tmp_path)
    with pytest.raises(DatabaseUnavailable, match=r"shop\.db was removed"):
        shop.tasks["add"].enqueue(3, 4)
    with pytest.raises(DatabaseUnavailable, match=r"shop\.db was removed"):
        shop.dead_letters()
    assert not (tmp_path / "shop.db").exists()


def test_a_file_that_was_replaced_is_found(shop: Penstock, app_on: AppOn, tmp_path: Path) -> None:
    shop.tasks["add"].enqueue(1, 2)
    remove(tmp_path)
    app_on(f"sqlite:///{tmp_path}/shop.db").migrate()
    job = shop.tasks["add"].enqueue(3, 4)
    drain(shop)
    assert job.result() == 7


@pytest.mark.process
@pytest.mark.parametrize("children", ["0", "1"])
def test_a_worker_goes_on_with_the_file_that_is_there(
    children: str, shop: Penstock, app_on: AppOn, workers_on: Callable[[str], Workers], tmp_path: Path
) -> None:
    """A developer removes the file to begin anew, and forgets the worker."""
    url = f"sqlite:///{tmp_path}/shop.db"
    worker = workers_on(url)("--processes", children, module=MODULE)
    assert shop.tasks["add"].enqueue(1, 2).result(timeout=30) == 3
    remove(tmp_path)
    eventually(lambda: "was removed" in worker.log)
    app_on(url).migrate()
    assert shop.tasks["add"].enqueue(3, 4).result(timeout=30) == 7
    assert worker.stop() == 0


def remove(folder: Path) -> None:
    for file in folder.glob("shop.db*"):
        file.unlink()


@pytest.mark.parametrize("by_sqlalchemy", [False, True])
def test_what_penstock_creates_is_for_its_own_user(
    app_on: AppOn, tmp_path: Path, by_sqlalchemy: bool
) -> None:
    before = os.umask(0o022)
    try:
        app = app_on(f"sqlite:///{tmp_path}/shop.db")
        if by_sqlalchemy:
            with app.database.engine.connect() as connection:
                connection.execute(text("SELECT 1"))
        app.prepare()
        app.task(name="add")(_add).enqueue(1, 2)
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert set(modes) >= {"shop.db", "shop.db-penstock"}
    assert set(modes.values()) == {0o600}, modes


def test_a_group_that_may_write_to_the_database_shares_the_gate(app_on: AppOn, tmp_path: Path) -> None:
    (tmp_path / "shop.db").touch()
    (tmp_path / "shop.db").chmod(0o664)
    app_on(f"sqlite:///{tmp_path}/shop.db").prepare()
    assert (tmp_path / "shop.db-penstock").stat().st_mode & 0o777 == 0o660, "who may only read cannot lock it"
    assert (tmp_path / "shop.db").stat().st_mode & 0o777 == 0o664, "what is there stays as it is"


def test_a_gate_that_leads_elsewhere_is_not_followed(app_on: AppOn, tmp_path: Path) -> None:
    (tmp_path / "shop.db-penstock").symlink_to(tmp_path / "victim")
    app = app_on(f"sqlite:///{tmp_path}/shop.db")
    app.task(name="add")(_add).enqueue(1, 2)
    assert not (tmp_path / "victim").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_another_user_who_was_first_at_the_gate_keeps_no_writer_waiting(
    app_on: AppOn, tmp_path: Path
) -> None:
    gate = tmp_path / "shop.db-penstock"
    gate.touch()
    os.chown(gate, 65534, 65534)
    app = app_on(f"sqlite:///{tmp_path}/shop.db", lock_timeout=5)
    add = app.task(name="add")(_add)
    with gate.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        began = time.monotonic()
        for number in range(5):
            add.enqueue(number, 2)
        assert time.monotonic() - began < 4


def _add(a: int, b: int) -> int:
    return a + b
