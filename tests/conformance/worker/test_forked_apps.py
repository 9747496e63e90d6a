"""values/fork_safety, app: the doors of an app: in a process forked from one that has used it, and after it was
closed.

A web server that loads the application and then forks its workers is the usual case.
"""

import asyncio
import faulthandler
import os
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import ConfigurationError, ResultTimeout
from penstock.task import Task
from penstock.testing import drain
from tests.conformance.rows import count

LONGEST = 60.0


def in_a_fork(act: Callable[[], object]) -> int:
    """Start a child that does this; its process id."""
    child = os.fork()
    if child:
        return child
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    try:
        act()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def use_every_door(task: Task[[int], int]) -> None:
    task.enqueue(1)
    asyncio.run(task.enqueue_async(2))
    job = task.enqueue(3)
    with pytest.raises(ResultTimeout):
        job.result(timeout=0)
    with pytest.raises(ResultTimeout):
        asyncio.run(job.result_async(timeout=0))


def test_all_doors_open_in_a_forked_child(app: Penstock) -> None:
    @app.task
    def double(number: int) -> int:
        return number * 2

    use_every_door(double)
    children = [in_a_fork(lambda: use_every_door(double)) for _ in range(2)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    use_every_door(double)
    assert count(app, "jobs") == 12
    assert drain(app) == 12


def test_a_fork_in_the_middle_of_a_transaction_leaves_the_connection_to_the_parent(app: Penstock) -> None:
    app.prepare()
    with app.database.transaction() as tx:
        child = in_a_fork(app.close)
        assert os.waitpid(child, 0)[1] == 0
        assert tx.rows("SELECT COUNT(*) FROM {jobs}") == [(0,)]


def test_a_closed_app_opens_again_at_either_door(app: Penstock) -> None:
    @app.task
    def double(number: int) -> int:
        return number * 2

    for _ in range(2):
        double.enqueue(1)
        asyncio.run(double.enqueue_async(2))
        app.close()
    assert drain(app) == 4


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"role": "boss"}, {"queues": "a:b"}])
def test_a_worker_that_is_told_something_wrong_does_not_start(app: Penstock, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"^{next(iter(wrong))}="):
        app.worker(**wrong)
