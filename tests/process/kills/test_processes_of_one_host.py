"""runtime/liveness/local_processes: Real processes on one machine, killed with SIGKILL: the others see it, though
`reap_after` is ten minutes.

Who only sleeps is left alone. What is found out by silence is tested everywhere else, by processes that do not see
each other.
"""

import os
import signal
import time
from pathlib import Path

import pytest

from penstock import Penstock
from tests.process.forks import killed_at, run, started
from tests.process.freezing import freeze
from tests.process.history import check, done, rows, settled
from tests.process.programs import start_worker
from tests.process.scenes import Part, make_app
from tests.waiting import eventually
from tests.workers import Workers

pytestmark = pytest.mark.process

SOON = 30
"""Seconds, on a machine that does a lot besides. By silence it would be minutes."""
RUNNING = """
SELECT j.queue, s.crash_count FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id WHERE s.status = 'running'
"""

PROBES = ["UPDATE {processes} SET host = host", "UPDATE {job_states} SET status = status"]


@pytest.fixture
def shop(database_url: str) -> Penstock:
    return make_app(database_url)


def part(url: str, folder: Path, scene: str, queue: str, heartbeat: float = 0.5) -> Part:
    diary = str(folder / f"diary-{queue}")
    settings: dict[str, object] = {"reap_after": 600, "heartbeat_interval": heartbeat}
    return Part(url, scene, queue, diary, hearth=str(folder), settings=settings)


def test_a_killed_worker_is_seen_and_a_frozen_one_left_alone(
    shop: Penstock, database_url: str, tmp_path: Path
) -> None:
    for queue in ("victim", "sleeper"):
        shop.tasks["forever"].options(queue=queue).enqueue()
    with (
        started(part(database_url, tmp_path, "serve", "victim")) as victim,
        started(part(database_url, tmp_path, "serve", "sleeper", heartbeat=20)) as sleeper,
    ):
        eventually(lambda: len(rows(shop, RUNNING)) == 2)
        assert sleeper.pid is not None
        freeze(sleeper.pid, database_url, PROBES)
        with started(part(database_url, tmp_path, "serve", "heir")):
            eventually(lambda: has_looked(shop))
            victim.kill()
            killed = time.monotonic()
            eventually(lambda: rows(shop, RUNNING) == [("sleeper", 0)], SOON)
            assert time.monotonic() - killed < SOON
            eventually(lambda: len(rows(shop, "SELECT id FROM {processes}")) == 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_names_that_another_user_has_squatted_slow_no_recovery(
    shop: Penstock, database_url: str, tmp_path: Path
) -> None:
    """In shared memory every user may make files, also under the names that Penstock would take first."""
    for name in (f"penstock-{os.geteuid()}", f"penstock-{os.geteuid()}.1"):
        (tmp_path / name).write_text("theirs")
        os.chown(tmp_path / name, 65534, 65534)
    shop.tasks["forever"].options(queue="victim").enqueue()
    with started(part(database_url, tmp_path, "serve", "victim")) as victim:
        eventually(lambda: len(rows(shop, RUNNING)) == 1)
        with started(part(database_url, tmp_path, "serve", "heir")):
            eventually(lambda: len(rows(shop, "SELECT id FROM {processes}")) == 2)
            victim.kill()
            eventually(lambda: rows(shop, RUNNING) == [], SOON)
            eventually(lambda: len(rows(shop, "SELECT id FROM {processes}")) == 1)
    assert (tmp_path / f"penstock-{os.geteuid()}").read_text() == "theirs"


def has_looked(app: Penstock) -> bool:
    """Three processes, and the last of them has had time for its first round."""
    alive = rows(app, "SELECT heartbeat_at - started_at FROM {processes} ORDER BY started_at")
    return len(alive) == 3 and alive[-1][0] > 400_000


def test_a_service_killed_with_all_its_processes_goes_on_as_soon_as_it_is_started(
    worker_process: Workers, shop: Penstock, tmp_path: Path
) -> None:
    here = {"PENSTOCK_TEST_HEARTH": str(tmp_path), "PENSTOCK_REAP_AFTER": "600"}
    shop.tasks["linger"].enqueue_many([(number,) for number in range(60)])
    first = start_worker(worker_process, "--processes", "2", "--concurrency", "3", env=here)
    eventually(lambda: done(shop) > 10)
    first.kill()
    dead = {id for (id,) in rows(shop, "SELECT id FROM {processes}")}
    assert len(dead) == 3
    second = start_worker(worker_process, "--processes", "2", env=here)
    settled(shop, SOON)
    assert not dead & {id for (id,) in rows(shop, "SELECT id FROM {processes}")}
    assert second.stop() == 0
    jobs = check(shop, worker_process.folder / "diary")
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    assert sum(job["crash_count"] for job in jobs.values()) in range(1, 13), (
        "only what was in hand has crashed"
    )


def test_the_worker_that_takes_over_may_be_killed_anywhere(
    shop: Penstock, database_url: str, tmp_path: Path
) -> None:
    struck = []
    for number, point in enumerate(
        ["reap.1", "reap.commit", "reap.committed", "reclaim.4", "reclaim.commit"]
    ):
        shop.tasks["double"].options(queue=f"q{number}").enqueue_many([(1,), (2,)])
        assert run(part(database_url, tmp_path, "hold", f"q{number}")) == -signal.SIGKILL
        if killed_at(point, part(database_url, tmp_path, "reap", f"reaper{number}")):
            struck.append(point)
    assert struck == ["reap.1", "reap.commit", "reap.committed", "reclaim.4", "reclaim.commit"]
    assert run(part(database_url, tmp_path, "work", "")) == 0
    jobs = check(shop)
    assert {(job["status"], job["crash_count"]) for job in jobs.values()} == {("succeeded", 1)}
