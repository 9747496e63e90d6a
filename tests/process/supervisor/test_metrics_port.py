"""cli/worker_monitor: `penstock worker --metrics-port`: sums over children, which outlive them, and probes; read by
Prometheus' parser.
"""

import os
import re
import signal
from collections import defaultdict
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from sqlalchemy import text

from penstock import Penstock
from tests.waiting import eventually
from tests.workers import WorkerProcess, Workers

pytestmark = pytest.mark.process

SHOP = """
import os, time

from penstock import Penstock

app = Penstock(heartbeat_interval=0.3, reap_after=20, housekeeping_interval=0.2, poll_interval=0.1)


@app.task(name="quick")
async def quick(number: int) -> int:
    return os.getpid()


@app.task(name="forward")
def forward(number: int) -> None:
    quick.enqueue(number)


@app.task(name="block")
async def block() -> None:
    time.sleep(600)
"""


def port_of(worker: WorkerProcess) -> int:
    found = eventually(lambda: re.search(r"metrics are served on \S+ port (\d+)", worker.log), 60)
    assert found is not None
    return int(found[1])


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def sums(port: int) -> dict[str, float]:
    """All samples by name, added up over their labels, as Prometheus' own parser reads them."""
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
    status, exposed = get(port, "/metrics")
    assert status == 200
    found: dict[str, float] = defaultdict(float)
    for family in parser.text_string_to_metric_families(exposed):
        assert family.documentation
        for sample in family.samples:
            found[sample.name] += sample.value
    return found


def number(number: int) -> int:
    raise AssertionError("it runs in the worker")


def nothing() -> None: ...


@pytest.mark.one_database
def test_the_numbers_of_all_children_are_added_up_and_survive_them(
    worker_process: Workers, app: Penstock
) -> None:
    """Two children, the supervisor and its server run at the same time. A child may be killed at any time."""
    worker = worker_process("--processes", "2", "--metrics-port", "0", module=SHOP)
    port = port_of(worker)
    eventually(lambda: get(port, "/readyz")[0] == 200, 60)
    quick, forward = app.task(name="quick")(number), app.task(name="forward")(number)
    jobs = quick.enqueue_many([(n,) for n in range(200)])
    pids = {job.result(timeout=60) for job in jobs}
    eventually(lambda: sums(port)["penstock_attempts_total"] == 200)
    assert pids <= set(worker.children())
    os.kill(next(iter(pids)), signal.SIGKILL)
    seen = [sums(port)["penstock_attempts_total"]]

    def replaced() -> bool:
        seen.append(sums(port)["penstock_attempts_total"])
        return sums(port)["penstock_children_ended_total"] >= 1 and len(worker.children()) == 2

    eventually(replaced, 60)
    assert set(seen) == {200.0}, "the counts of a killed child went away, or came twice"
    eventually(lambda: get(port, "/readyz")[0] == 200, 60)
    forward.enqueue(1)
    eventually(lambda: sums(port)["penstock_attempts_total"] == 202)
    found = sums(port)
    assert found["penstock_attempt_seconds_count"] == 202
    assert found["penstock_jobs_enqueued_total"] == 1, "what a handler enqueues is counted by its worker"
    assert found["penstock_database_up"] == 1
    eventually(lambda: sums(port)["penstock_processes"] >= 3)
    eventually(lambda: get(port, "/livez") == (200, "ok\n"))
    assert get(port, "/nothing")[0] == 404
    assert worker.stop() == 0


@pytest.mark.one_database
def test_one_process_and_a_stuck_loop(worker_process: Workers, app: Penstock) -> None:
    module = SHOP + "\nfrom penstock.cli import worker_monitor\nworker_monitor.LONGEST_PAUSE = 2.0\n"
    worker = worker_process("--processes", "0", "--metrics-port", "0", module=module)
    port = port_of(worker)
    eventually(lambda: get(port, "/readyz")[0] == 200, 60)
    eventually(lambda: get(port, "/livez")[0] == 200)
    app.task(name="block")(nothing).enqueue()
    eventually(lambda: get(port, "/livez")[0] == 503, 60)
    assert "has not turned" in get(port, "/livez")[1]
    assert sums(port)["penstock_jobs_claimed_total"] == 1


def test_not_ready_without_the_schema(worker_process: Workers, app: Penstock) -> None:
    """The probe looks at the database each time, not only at the start."""
    worker = worker_process("--processes", "1", "--metrics-port", "0", module=SHOP)
    port = port_of(worker)
    eventually(lambda: get(port, "/readyz")[0] == 200, 60)
    with app.database.engine.begin() as connection:
        connection.execute(
            text(f"UPDATE {app.database.qualified('schema_versions')} SET version = version + 900")
        )
    status, said = get(port, "/readyz")
    assert (status, "SchemaTooNew" in said) == (503, True)
    assert get(port, "/livez")[0] == 200


def test_a_port_that_is_taken_is_named(worker_process: Workers) -> None:
    first = worker_process("--processes", "0", "--metrics-port", "0", module=SHOP)
    port = port_of(first)
    second = worker_process("--processes", "0", "--metrics-port", str(port))
    assert second.wait(60) == 2
    assert f"port {port}" in second.log
