"""database/transaction: a cluster undoes a transaction because another node's went first: it is done again, and no log
line tells of it.

The server itself says so here: a trigger refuses the first few writes with the error of Group Replication, or Galera's.
A table that knows no transactions counts them.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import text

from penstock import Penstock
from penstock.telemetry.events import TroubleBegan

AppOn = Callable[..., Penstock]

CODES = {
    3100: "Error on observer while running replication hook 'before_commit'",
    3101: "Plugin instructed the server to rollback the current transaction",
    1213: "Deadlock found when trying to get lock; try restarting transaction",
    1047: "WSREP has not yet prepared node for application use",
    1205: "Lock wait timeout exceeded; try restarting transaction",
}
REFUSALS = 4


@contextmanager
def refusing(app: Penstock, table: str, code: int) -> Iterator[None]:
    """The next few transactions that insert there are undone."""
    name = app.database.qualified(table)
    with app.database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE left_over (n INT) ENGINE=Aria TRANSACTIONAL=0"))
        connection.execute(text("INSERT INTO left_over VALUES (:n)"), {"n": REFUSALS})
        connection.execute(
            text(
                f"""CREATE TRIGGER refusing BEFORE INSERT ON {name} FOR EACH ROW BEGIN
                UPDATE left_over SET n = n - 1;
                IF (SELECT n FROM left_over) >= 0 THEN
                  SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = "{CODES[code]}";
                END IF; END"""
            )
        )
    yield
    with app.database.engine.begin() as connection:
        assert connection.execute(text("SELECT n FROM left_over")).scalar_one() < 0, "it was refused in vain"
        connection.execute(text("DROP TRIGGER refusing"))


@pytest.mark.parametrize("code", CODES)
def test_a_keyed_enqueue_is_done_again(app_on: AppOn, mariadb_url: str, code: int) -> None:
    app = app_on(mariadb_url)

    @app.task
    def work(number: int) -> None: ...

    with refusing(app, "job_keys", code):
        first = work.options(key="order:1").enqueue(1)
    assert work.options(key="order:1").enqueue(1).id == first.id


@pytest.mark.parametrize("code", CODES)
def test_a_worker_settles_again_and_speaks_of_no_trouble(app_on: AppOn, mariadb_url: str, code: int) -> None:
    app = app_on(mariadb_url)
    trouble: list[TroubleBegan] = []
    app.events.on(TroubleBegan, trouble.append)

    @app.task
    async def work(number: int) -> int:
        return number

    async def main() -> None:
        async with app.worker():
            job = await work.enqueue_async(1)
            assert await job.result_async(timeout=20) == 1

    with refusing(app, "executions", code):
        asyncio.run(main())
    assert not trouble
