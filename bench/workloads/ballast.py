"""Old tables: a million finished rows, a million pending ones, and a snapshot that keeps the dead rows alive."""

from functools import partial

from bench.driver import Bench
from bench.server import pinned
from bench.workloads.base import Figures, Workload
from bench.workloads.drain import JOBS, run_down

MILLION = 1_000_000
MANY = 100_000


def after_history(bench: Bench, millions: int = 1) -> Figures:
    """The drain again, on top of so many finished jobs."""
    for _ in range(millions):
        bench.add_history(int(MILLION * min(1, bench.scale)))
    bench.database.run("VACUUM ANALYZE")
    count = bench.size(JOBS)
    bench.do("fill", count=count)
    return run_down(bench, count)


def under_snapshot(bench: Bench) -> Figures:
    """100,000 jobs while somebody holds a snapshot open."""
    count = bench.size(MANY)
    bench.do("fill", count=count)
    with pinned(bench.database.url):
        return run_down(bench, count)


def claim_time(bench: Bench) -> Figures:
    """One claim on an empty system, and with everything at once."""
    few = bench.size(JOBS)
    bench.do("fill", count=few)
    run_down(bench, few, claims=True)
    empty = _claims(bench)
    bench.agents.pop().kill()
    million = int(MILLION * min(1, bench.scale))
    bench.add_history(million)
    bench.database.run("VACUUM ANALYZE")
    bench.do("fill", count=million)
    many = bench.size(MANY)
    with pinned(bench.database.url):
        agent = bench.start("work", slot=1, claims=True)
        agent.go()
        bench.wait(lambda: bench.marks.total >= few + many, 120)
        agent.kill()
    full = _claims(bench)[len(empty) :]
    last = full[len(full) * 3 // 4 :]
    return {
        "empty": _each(empty),
        "full": _each(full),
        "last": _each(last),
        "ratio": _each(last) / _each(empty),
        "slowest": max(seconds for _, seconds in full) * 1000,
    }


def _claims(bench: Bench) -> list[tuple[int, float]]:
    """Jobs and seconds of each claim that took something."""
    lines = (bench.folder / "claims").read_text().splitlines()
    return [(int(line.split()[0]), float(line.split()[1])) for line in lines]


def _each(claims: list[tuple[int, float]]) -> float:
    """Microseconds of claiming for one job."""
    return sum(seconds for _, seconds in claims) / max(1, sum(jobs for jobs, _ in claims)) * 1e6


WORKLOADS = (
    Workload("history", "drain with 1 M finished jobs, 1 process", after_history, {"jobs": "jobs/s"}),
    Workload(
        "history-10",
        "drain with 10 M finished jobs, 1 process",
        partial(after_history, millions=10),
        {"jobs": "jobs/s"},
        most_rounds=1,
    ),
    Workload("snapshot", "drain of 100,000 under an open snapshot", under_snapshot, {"jobs": "jobs/s"}),
    Workload(
        "claims",
        "claim with 1 M pending, 1 M finished, open snapshot",
        claim_time,
        {"empty": "µs/job, empty", "full": "µs/job, full", "ratio": "times the empty one, last quarter"},
        ("penstock",),
    ),
)
