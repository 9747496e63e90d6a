"""database/user/transactions: a connection that was lent to a user's code is as good as before, whatever was
executed and rolled back on it.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest
from sqlalchemy import Connection, String, insert, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Penstock, Reconcilable, Retry, current
from penstock.errors import ActionRefused
from penstock.job import Job
from penstock.task import Task
from penstock.testing import drain

OFTEN = 12
"""More often than a driver sees a statement before it prepares it."""


class Base(DeclarativeBase): ...


class Volume(Base, Reconcilable):
    __tablename__ = "lent_volumes"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(20))


def read_often(connection: Connection) -> None:
    for _ in range(OFTEN):
        connection.execute(text("SELECT name FROM lent_volumes WHERE id = 1"))


def roll_back(connection: Connection) -> None:
    read_often(connection)
    raise KeyError


def roll_back_a_part(connection: Connection) -> None:
    with connection.begin_nested() as part:
        read_often(connection)
        part.rollback()


def discard(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("DEALLOCATE ALL"))
    raise KeyError


@pytest.fixture
def stage(app: Penstock) -> Penstock:
    Base.metadata.create_all(app.database.engine)
    with app.database.engine.begin() as connection:
        connection.execute(insert(Volume), [{"id": 1, "name": "data"}])
    return app


@pytest.fixture
def count(stage: Penstock) -> Task[[int], int]:
    @stage.task(name="count")
    def count(number: int) -> int:
        return number

    return count


def let_others_have_it(app: Penstock, job: Job[int]) -> None:
    """After something that was refused, a connection goes back to where users' code has its own from."""
    with pytest.raises(ActionRefused):
        app.flow("of one").start(app.tasks["count"]).trigger(1).signal("nobody waits for this")
    assert job.status is not None


@pytest.mark.parametrize("misuse", [read_often, roll_back, roll_back_a_part, discard])
@pytest.mark.parametrize("way", ["lock", "engine"])
def test_after_a_block(
    stage: Penstock, count: Task[[int], int], way: str, misuse: Callable[[Connection], None]
) -> None:
    jobs = []
    for number in range(4):
        jobs.append(count.enqueue(number))
        let_others_have_it(stage, jobs[-1])
        block = stage.lock(Volume, 1, timeout=5) if way == "lock" else stage.database.engine.connect()
        with suppress(KeyError), block as connection:
            misuse(connection)
    drain(stage)
    assert [job.result(timeout=0) for job in jobs] == list(range(4))


@pytest.mark.parametrize("misuse", [roll_back, roll_back_a_part, discard])
def test_after_and_inside_a_transaction_of_a_job(
    stage: Penstock, count: Task[[int], int], misuse: Callable[[Connection], None]
) -> None:
    @stage.task(name="write", retries=Retry(max=3, delay=0))
    def write(number: int) -> int:
        job = current()
        with job.transaction() as connection:
            if job.attempt < 3:
                misuse(connection)
            count.options(connection=connection).enqueue(number)
            job.complete(number)
        return number

    for number in range(3):
        job = write.enqueue(number)
        let_others_have_it(stage, job)
        drain(stage)
        assert job.result(timeout=0) == number
