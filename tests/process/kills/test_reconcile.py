"""runtime/reconcilers/reconciler_worker: Reconcilers in real processes: killed, frozen, stopped, cut off; and what
becomes of their rows.
"""

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from signal import SIGCONT, SIGKILL
from typing import Any

import pytest
from sqlalchemy import insert, select

from penstock import Penstock
from penstock.reconcile.columns import from_micros
from tests.process.conftest import alive
from tests.process.freezing import freeze
from tests.process.reconcile_cloud import Base, Fleet, Instance, Volume
from tests.servers.server import Server
from tests.waiting import eventually
from tests.workers import WorkerProcess, Workers

pytestmark = pytest.mark.process
LEASE = 3.0


class Cloud:
    """The cloud's tables, its diary and gate, and workers on it."""

    def __init__(self, app: Penstock, workers: Workers) -> None:
        self.app = app
        self.workers = workers
        self.folder = workers.folder
        app.prepare()
        Base.metadata.create_all(app.database.engine)

    def add(self, model: Any, *rows: dict[str, Any]) -> None:
        with self.app.database.engine.begin() as connection:
            connection.execute(insert(model), list(rows))

    def rows(self, model: Any) -> list[Any]:
        with self.app.database.engine.begin() as connection:
            return list(connection.execute(select(model).order_by(model.id)))

    def now(self) -> datetime:
        row = self.app.database.read(lambda tx: tx.row("SELECT {now}"))
        assert row is not None
        return from_micros(row[0])

    def all(self, model: Any, **values: Any) -> bool:
        rows = self.rows(model)
        return all(getattr(row, name) == value for row in rows for name, value in values.items())

    def close_gate(self) -> None:
        (self.folder / "gate").touch()

    def open_gate(self) -> None:
        (self.folder / "gate").unlink()

    def diary(self, word: str = "begin") -> list[list[str]]:
        file = self.folder / "diary"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.split() for line in lines if line.startswith(f"{word} ")]

    def freeze(self, worker: WorkerProcess) -> None:
        """The probes write a column that the indexes lead with: a claim that found nothing may hold places in them."""
        tables = (Volume, Fleet, Instance)
        probes = [f"UPDATE {table.__tablename__} SET status = 'tried'" for table in tables]
        freeze(worker.pid, self.workers.database_url, probes)

    def start(self, lease: float = LEASE, processes: int = 0, **env: str) -> WorkerProcess:
        ours = {"CLOUD_FOLDER": str(self.folder), "CLOUD_LEASE": str(lease)} | env
        options = ("--processes", str(processes), "--role", "reconciler", "--log-level", "info")
        return self.workers(*options, target="tests.process.reconcile_cloud:app", env=ours)


@pytest.fixture
def cloud(app: Penstock, worker_process: Workers) -> Cloud:
    return Cloud(app, worker_process)


def test_rows_of_a_killed_worker_are_taken_over_after_the_lease(cloud: Cloud) -> None:
    cloud.close_gate()
    cloud.add(Volume, {"id": 1}, {"id": 2})
    cloud.add(Fleet, {"id": 1})
    cloud.add(Instance, *[{"id": number, "fleet_id": 1} for number in (1, 2, 3)])
    first = cloud.start()
    eventually(lambda: len(cloud.diary()) == 3)
    second = cloud.start()
    eventually(lambda: "started" in second.log)
    first.send_all(SIGKILL)
    killed = time.monotonic()
    ends = [row.lock_expires_at for row in [*cloud.rows(Volume), *cloud.rows(Fleet)]]
    offset = cloud.now() - timedelta(seconds=time.monotonic())
    cloud.open_gate()
    eventually(lambda: cloud.all(Volume, status="active") and cloud.all(Fleet, status="formed"), LEASE + 30)
    assert cloud.all(Volume, maker=second.pid, recovered=1, lock_token=None)
    assert cloud.all(Fleet, maker=second.pid, lock_token=None)
    assert cloud.all(Instance, status="joined", lock_token=None)
    begun = [float(entry[4]) for entry in cloud.diary() if int(entry[3]) == second.pid]
    assert len(begun) == 3
    assert max(begun) - killed < LEASE + 1, "after kill -9: the lease, and a second"
    late = max(offset + timedelta(seconds=at) for at in begun) - max(ends)
    assert timedelta(0) < late < timedelta(seconds=1), "by the database's clock: not before the lease is over"


def test_a_row_in_a_process_of_its_own_is_taken_over_when_its_worker_is_killed(cloud: Cloud) -> None:
    """The handler's process ends with its worker, long before the lease does: no two work on the row."""
    cloud.close_gate()
    cloud.add(Volume, {"id": 1, "status": "heavy"})
    first = cloud.start()
    eventually(lambda: len(cloud.diary()) == 1)
    child = int(cloud.diary()[0][3])
    assert child != first.pid
    second = cloud.start()
    eventually(lambda: "started" in second.log)
    first.send(SIGKILL)
    eventually(lambda: not alive(child))
    assert len(cloud.diary()) == 1
    cloud.open_gate()
    eventually(lambda: cloud.all(Volume, status="active"), LEASE + 30)
    assert cloud.all(Volume, maker=second.pid, recovered=1, process_crashes=0, lock_token=None)


def test_a_row_that_kills_its_process_is_given_up_and_the_others_are_done(cloud: Cloud) -> None:
    cloud.add(Volume, {"id": 1, "status": "deadly"})
    cloud.add(Volume, *[{"id": number} for number in range(2, 7)])
    worker = cloud.start(lease=0.5, processes=1)
    eventually(lambda: cloud.all(Volume, lock_token=None) and cloud.rows(Volume)[0].status == "given up", 60)
    deaths = [entry for entry in cloud.diary() if entry[2] == "1"]
    assert len({entry[3] for entry in deaths}) == len(deaths) == 3, (
        "each try cost a process, and there were no more"
    )
    eventually(lambda: {row.status for row in cloud.rows(Volume)[1:]} == {"active"})
    assert worker.stop() == 0


@pytest.mark.parametrize("status", ["submitted", "threaded", "heavy"])
def test_a_worker_frozen_past_its_lease_changes_nothing_when_it_wakes(cloud: Cloud, status: str) -> None:
    cloud.close_gate()
    cloud.add(Volume, {"id": 1, "status": status})
    frozen = cloud.start()
    eventually(lambda: len(cloud.diary()) == 1)
    cloud.freeze(frozen)
    cloud.open_gate()
    second = cloud.start()
    eventually(lambda: cloud.all(Volume, status="active"), LEASE + 30)
    before = cloud.rows(Volume)
    frozen.send(SIGCONT)
    eventually(lambda: "LeaseLost" in frozen.log)
    eventually(lambda: cloud.diary("regret") + cloud.diary("undo"))
    assert cloud.rows(Volume) == before
    assert cloud.all(Volume, maker=second.pid)
    cloud.add(Volume, {"id": 2, "status": status})
    second.kill()
    eventually(lambda: cloud.all(Volume, status="active"), 30), "and the frozen one goes on working"


def test_a_graceful_stop_finishes_what_runs_and_gives_back_the_rest_at_once(cloud: Cloud) -> None:
    cloud.close_gate()
    cloud.add(Volume, *[{"id": number} for number in range(1, 21)])
    worker = cloud.start(lease=600)
    eventually(lambda: len(cloud.diary()) == 4)
    worker.send(15)  # type: ignore[arg-type]
    eventually(lambda: sum(row.lock_token is not None for row in cloud.rows(Volume)) == 4)
    cloud.open_gate()
    assert worker.wait() == 0
    rows = cloud.rows(Volume)
    assert sum(row.status == "active" for row in rows) == 4
    assert {row.lock_token for row in rows} == {None}
    assert {row.process_attempts for row in rows} == {0}
    cloud.start()
    eventually(lambda: cloud.all(Volume, status="active"))  # no worker waits for a lease of ten minutes


@pytest.mark.one_database
def test_clocks_an_hour_apart_do_not_matter(cloud: Cloud) -> None:
    cloud.close_gate()
    cloud.add(Volume, *[{"id": number} for number in range(1, 5)])
    ahead = cloud.start(CLOUD_SKEW="3600")
    eventually(lambda: len(cloud.diary()) == 4)
    behind = cloud.start(CLOUD_SKEW="-3600")
    cloud.add(Volume, {"id": 9})
    eventually(lambda: len(cloud.diary()) == 5)
    assert {entry[3] for entry in cloud.diary() if entry[2] == "9"} == {str(behind.pid)}
    time_to_renew = time.monotonic() + LEASE + 1
    eventually(lambda: time.monotonic() > time_to_renew)
    assert len(cloud.diary()) == 5, "no worker takes a row that another renews"
    cloud.open_gate()
    eventually(lambda: cloud.all(Volume, status="active", recovered=0))
    assert {row.maker for row in cloud.rows(Volume)} == {ahead.pid, behind.pid}


def test_a_hint_reaches_other_processes(cloud: Cloud, database_kind: str) -> None:
    cloud.start()
    cloud.add(Volume, {"id": 1})
    eventually(lambda: cloud.all(Volume, status="active"))
    if database_kind == "mariadb":
        return  # No worker can be told there; rows are found by looking.
    took = []
    for number in range(2, 8):
        asked = time.monotonic()
        cloud.add(Volume, {"id": number})
        cloud.app.hint(Volume)
        eventually(lambda: cloud.all(Volume, status="active"))
        took.append(time.monotonic() - asked)
    assert sorted(took)[2] < 2, took  # now and then a machine has too much else to do


@pytest.mark.one_database
def test_the_command_shows_what_was_done_and_what_fails(cloud: Cloud) -> None:
    cloud.add(Volume, {"id": 1}, {"id": 2})
    cloud.add(Volume, {"id": 3, "status": "broken"})
    worker = cloud.start()
    eventually(lambda: [row.status for row in cloud.rows(Volume)][:2] == ["active", "active"])
    eventually(lambda: cloud.rows(Volume)[2].process_attempts == 1)
    assert worker.stop() == 0
    shown = cloud.workers.python(
        "-m", "penstock", "reconcilers", "--json", "--app", "tests.process.reconcile_cloud:app"
    )
    assert shown.wait() == 0
    seen = json.loads(shown.log)
    rows = {row["name"]: row for row in seen["reconcilers"]}
    assert (rows["volumes"]["processed"], rows["volumes"]["lost"], rows["volumes"]["locked"]) == (2, 0, 0)
    assert (rows["broken"]["failed"], seen["failing"][0]["row"]) == (1, "3")
    assert "no such zone" in seen["failing"][0]["error"]


@pytest.mark.parametrize("kind", ["postgres_server", "mariadb_server"])
def test_a_server_restart_loses_nothing(
    kind: str,
    request: pytest.FixtureRequest,
    app_on: Callable[..., Penstock],
    workers_on: Callable[[str], Workers],
    tmp_path: Path,
) -> None:
    server: Server = request.getfixturevalue(kind)
    url = server.create_database("cloud")
    cloud = Cloud(app_on(url), workers_on(url))
    cloud.close_gate()
    cloud.add(Volume, *[{"id": number} for number in range(1, 9)])
    worker = cloud.start(lease=8)
    eventually(lambda: len(cloud.diary()) == 4)
    cloud.app.database.close()
    server.restart()
    cloud.open_gate()
    eventually(lambda: cloud.all(Volume, status="active", lock_token=None), 60)
    assert cloud.all(Volume, maker=worker.pid, recovered=0), "shorter than the margin: no claim was lost"
    assert len(cloud.diary()) == 8, "and nothing was done twice"
