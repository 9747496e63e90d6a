"""cli/commands/worker: a worker says at its start which database, queues and tasks it has: once, whatever the number
of its processes.
"""

from collections.abc import Callable

import pytest

from penstock import Penstock
from penstock.testing import drain
from tests.waiting import eventually
from tests.workers import Workers

pytestmark = pytest.mark.process

SHOP = """
from penstock import Penstock
app = Penstock()

@app.task
def pay(order: int) -> int:
    return order

@app.task(name="mail")
def send(order: int) -> int:
    return order
"""


@pytest.mark.one_database
@pytest.mark.parametrize("processes", ["0", "2"])
def test_it_is_told_once(workers_on: Callable[..., Workers], sqlite_url: str, processes: str) -> None:
    worker = workers_on(sqlite_url)("--processes", processes, "--queues", "mail:10,default", module=SHOP)
    eventually(lambda: worker.log.count(") started, pid") >= int(processes) + 1, 60)
    assert worker.stop() == 0
    (line,) = [line for line in worker.log.splitlines() if "worker on" in line]
    for part in (" info ", "sqlite:///", "queues: mail:10,default", "2 tasks (mail, shop.pay)"):
        assert part in line, line


@pytest.mark.one_database
def test_that_it_has_none_is_a_warning(workers_on: Callable[..., Workers], sqlite_url: str) -> None:
    worker = workers_on(sqlite_url)(
        "--processes", "0", module="from penstock import Penstock\napp = Penstock()\n"
    )
    eventually(lambda: "worker on" in worker.log, 60)
    worker.stop()
    (line,) = [line for line in worker.log.splitlines() if "worker on" in line]
    assert " warning " in line
    assert "no tasks: it will do nothing. Import the modules" in line


QUEUES = """
from penstock import Penstock
app = Penstock()

@app.task(queue="mail")
def send(order: int) -> int:
    return order

@app.task
def pay(order: int) -> int:
    return order

@app.pipeline
def both(order: int):
    return pay.options(queue="hd")(order)

send.schedule("0 5 * * *", name="early", args=[1], queue="night")
"""


@pytest.mark.one_database
@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_queue_that_nothing_has_used_is_a_warning(
    workers_on: Callable[..., Workers], sqlite_url: str, processes: str
) -> None:
    """A queue is for a task, a step or a schedule of the app, or has had jobs; else it may be a typing error."""
    with Penstock(sqlite_url) as app:
        app.task(name="elsewhere", queue="letters")(print)
        app.task(name="other", queue="parcels")(print)
        app.tasks["elsewhere"].enqueue()
        drain(app)
        app.tasks["other"].enqueue()
    queues = "mail,default,hd,night,letters,parcels,mial,zzz"
    worker = workers_on(sqlite_url)("--processes", processes, "--queues", queues, module=QUEUES)
    eventually(lambda: worker.log.count(") started, pid") >= int(processes) + 1, 60)
    assert worker.stop() == 0
    mial, zzz = [line for line in worker.log.splitlines() if "no job has been in it" in line]
    assert " warning " in mial
    assert "queue 'mial', and no job has been in it yet. Did you mean 'mail'?" in mial
    assert zzz.endswith("queue 'zzz', and no job has been in it yet")
