"""queue/claim, queue/settle, queue/reclaim: SIGKILL between any two statements. Invariants 1, 3, 10 and 11: no work is
lost.

The points are not listed here: a first process passes them undisturbed and writes them down. Then one process is killed
at each, on a queue of its own; what all of them left is recovered at once and checked.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.testing import drain, travel
from tests.process.forks import killed_at, points_of, run
from tests.process.history import check, declare_dead, recover, rows
from tests.process.scenes import Part, make_app

pytestmark = pytest.mark.process


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    return tmp_path / "diary"


@pytest.fixture
def shop(database_url: str, diary: Path) -> Penstock:
    return make_app(database_url, str(diary))


@pytest.fixture
def kill_everywhere(
    shop: Penstock, database_url: str, diary: Path, tmp_path: Path
) -> Callable[..., set[str]]:
    """Kill one process at each point of a scene, each with its own work; the points at which one died."""

    def kill(scene: str, prepare: Callable[[str], None], stages: str = "", finish: bool = True) -> set[str]:
        prepare("undisturbed")
        part = Part(database_url, scene, "undisturbed", str(diary))
        wanted = stages.split()
        passed = [
            point
            for point in points_of(part, tmp_path)
            if not point.startswith("transaction.") and (not wanted or point.split(".")[0] in wanted)
        ]
        struck = set()
        for number, point in enumerate(passed):
            queue = f"kill-{number}"
            prepare(queue)
            diary_of_its_own = diary if scene != "stop" else tmp_path / f"diary-{number}"
            part = Part(database_url, scene, queue, str(diary_of_its_own))
            if killed_at(point, part):
                struck.add(point)
        if finish:
            declare_dead(shop)
            recover(shop)
        return struck

    return kill


def test_a_worker_may_be_killed_anywhere(
    shop: Penstock, kill_everywhere: Callable[..., set[str]], diary: Path
) -> None:
    def prepare(queue: str) -> None:
        for task in ("double", "double_async"):
            shop.tasks[task].options(queue=queue).enqueue_many([(number,) for number in range(3)])

    struck = kill_everywhere("work", prepare)
    jobs = check(shop, diary)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    assert {job["retry_count"] for job in jobs.values()} == {0}
    assert {job["crash_count"] for job in jobs.values()} == {0, 1}
    assert {
        "register.1",
        "claim.1",
        "claim.commit",
        "claim.committed",
        "hand_over",
        "execute.before",
    } <= struck
    assert {
        "execute.after",
        "settle.1",
        "settle.commit",
        "settle.committed",
    } <= struck


@pytest.mark.parametrize(
    ("task", "status", "retries"),
    [("stumble", "succeeded", 1), ("stumble_on", "failed", 1), ("doze", "succeeded", 0)],
)
def test_a_settle_of_every_kind_may_be_killed_anywhere(
    shop: Penstock,
    kill_everywhere: Callable[..., set[str]],
    diary: Path,
    task: str,
    status: str,
    retries: int,
) -> None:
    def prepare(queue: str) -> None:
        shop.tasks[task].options(queue=queue).enqueue_many([(1,), (2,)])

    struck = kill_everywhere("work", prepare, "settle promote")
    jobs = check(shop, diary)
    assert {(job["status"], job["retry_count"]) for job in jobs.values()} == {(status, retries)}
    assert {job["crash_count"] for job in jobs.values()} >= {0, 1}
    assert {"settle.1", "settle.2", "settle.commit", "settle.committed"} <= struck
    if task != "stumble_on":
        assert {"promote.1", "promote.2", "promote.3", "promote.commit", "promote.committed"} <= struck


def test_a_graceful_stop_may_be_killed_anywhere(
    shop: Penstock, kill_everywhere: Callable[..., set[str]]
) -> None:
    def prepare(queue: str) -> None:
        shop.tasks["hang"].options(queue=queue).enqueue_many([(number,) for number in range(4)])

    struck = kill_everywhere("stop", prepare, "settle leave hand_over release")
    jobs = check(shop)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    undisturbed = [job for job in jobs.values() if job["queue"] == "undisturbed"]
    assert {job["crash_count"] for job in undisturbed} == {0}, "a graceful stop spends nothing"
    assert "released" in {kind for job in undisturbed for kind in job["attempts"]}
    assert {"settle.1", "settle.commit", "settle.committed"} <= struck
    assert {"leave.1", "leave.commit", "leave.committed"} <= struck


def test_the_reaper_may_be_killed_anywhere(
    shop: Penstock, kill_everywhere: Callable[..., set[str]], database_url: str, diary: Path
) -> None:
    def prepare(queue: str) -> None:
        """What one that was killed has not taken back is there for the next one."""
        if not rows(shop, "SELECT 1 FROM {claims}"):
            shop.tasks["double"].options(queue=queue).enqueue_many([(1,), (2,)])
            run(Part(database_url, "hold", queue, str(diary)))
        declare_dead(shop)

    struck = kill_everywhere("reap", prepare, "reap reclaim")
    jobs = check(shop, diary)
    assert {(job["status"], job["crash_count"], job["retry_count"]) for job in jobs.values()} == {
        ("succeeded", 1, 0)
    }
    assert {f"reclaim.{n}" for n in (1, 2, 3, 4, 5, "commit", "committed")} <= struck
    assert {"reap.1", "reap.2", "reap.commit", "reap.committed"} <= struck


def test_giving_back_what_was_claimed_unawares_may_be_killed_anywhere(
    shop: Penstock, kill_everywhere: Callable[..., set[str]], diary: Path
) -> None:
    def prepare(queue: str) -> None:
        shop.tasks["double"].options(queue=queue).enqueue_many([(1,), (2,)])

    struck = kill_everywhere("doubt", prepare, "release release_unknown")
    jobs = check(shop, diary, every_claim_recorded=False)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    assert {(job["retry_count"]) for job in jobs.values()} == {0}
    undisturbed = [job for job in jobs.values() if job["queue"] == "undisturbed"]
    assert {job["crash_count"] for job in undisturbed} == {0}, "a lost answer spends nothing"
    assert {"release_unknown.1", "release.1", "release.2", "release.commit", "release.committed"} <= struck


def test_a_producer_may_be_killed_anywhere(
    shop: Penstock, kill_everywhere: Callable[..., set[str]], diary: Path
) -> None:
    struck = kill_everywhere("produce", lambda _queue: None)
    assert {"enqueue.1", "enqueue.2", "enqueue.commit", "enqueue.committed"} <= struck
    double = shop.tasks["double"]
    queues = ["undisturbed", *(f"kill-{number}" for number in range(len(struck)))]
    for queue in queues:
        double.options(queue=queue, key=queue).enqueue(1)
    recover(shop)
    jobs = check(shop, diary)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    per_queue = {queue: sum(job["queue"] == queue for job in jobs.values()) for queue in queues}
    assert set(per_queue.values()) <= {1, 2, 7}, "each enqueue is there as a whole or not at all"
    assert per_queue["undisturbed"] == 7


def test_steering_may_be_killed_anywhere(
    shop: Penstock, kill_everywhere: Callable[..., set[str]], diary: Path
) -> None:
    def prepare(queue: str) -> None:
        shop.tasks["double"].options(queue=queue).enqueue(1)
        drain(shop, queues=queue)
        shop.tasks["double"].options(queue=queue, delay=3600).enqueue(1)
        shop.tasks["stumble_on"].options(queue=queue, retries=0).enqueue(1)
        drain(shop, queues=queue)

    struck = kill_everywhere("steer", prepare, finish=False)
    assert {"cancel.1", "cancel.2", "cancel.commit", "retry.1", "retry.2", "retry.commit"} <= struck
    with travel(shop, 4000):
        recover(shop)
    jobs = check(shop, diary, steered=True)
    assert {job["status"] for job in jobs.values()} == {"cancelled", "failed", "succeeded"}
