"""The file of a SQLite database: where it is sought, and what happens to it under way."""

from collections.abc import Callable
from pathlib import Path

import pytest

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
    """A daemon changes its folder before its first job, and so does a handler of somebody's."""
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
    """Whoever develops removes the file to begin anew, and forgets the worker."""
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
