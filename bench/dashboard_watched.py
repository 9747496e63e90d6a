"""A drain beside browsers that watch: its time, and the CPU of everyone who took part.

A round is a drain alone and a drain that is watched, in turns first and second: whatever the one leaves behind for the
next (dead rows, a vacuum that is due) falls on both alike. The time of a drain is taken from the rows afterwards, from
the first claim to the last settle by the database's clock: to look at tables meanwhile would itself cost something.
The watchers are a process of their own. They ask as the script of a page does: every second, for what has changed.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench.marks import Marks
from bench.server import cpu_seconds
from penstock import Penstock
from tests.servers.postgres import Postgres
from tests.web import ask

WATCHERS = 10
PAGES = ("/", "/jobs")
WARM_UP = 3.0
"""Seconds for which the watchers look before the drain: what is measured is a page that has been open for a while."""
PATIENCE = 120.0
MODULE = """
import os

from bench.marks import Marks
from penstock import Penstock

app = Penstock()
marks = Marks(os.environ["BENCH_MARKS"]) if "BENCH_MARKS" in os.environ else None


@app.task(name="noop", queue="drained")
async def noop(number: int) -> None:
    if marks:
        marks.count()
"""
TIMES = """
SELECT max(finished_at) - min(claimed_at), count(*) FILTER (WHERE finished_at IS NOT NULL)
FROM penstock_job_states WHERE job_id >= %s AND job_id <= %s
"""
BACKENDS = "SELECT pid, application_name FROM pg_stat_activity WHERE backend_type = 'client backend'"
CLAIMS = "SELECT count(*) FROM penstock_claims"


@dataclass(frozen=True, slots=True)
class Drained:
    """One drain: seconds by the database's clock, and CPU seconds of each process or kind of process."""

    seconds: float
    cpu: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.cpu.values())


def named(url: str, name: str) -> str:
    """The URL whose connections the server knows by a name."""
    return f"{url}{'&' if '?' in url else '?'}application_name={name}"


def surroundings(url: str, folder: str) -> dict[str, str]:
    """The environment of a process with the module of these jobs."""
    return {"PENSTOCK_DATABASE_URL": url, "PYTHONPATH": f"{folder}{os.pathsep}{os.getcwd()}"}


class CpuClock:
    """CPU seconds so far: of processes by name, of the server's connections by the name of their application."""

    def __init__(self, server: Postgres, url: str, processes: Mapping[str, int]) -> None:
        self._server = server
        self._connection = psycopg.connect(named(url, "bench-clock"), autocommit=True)
        self._processes = processes

    def read(self) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        for name, pid in self._processes.items():
            found[name] += _cpu_of(pid)
        known = 0.0
        for pid, name in self._connection.execute(BACKENDS).fetchall():
            seconds = _cpu_of_backend(pid)
            found[f"server for {name}"] += seconds
            known += seconds
        found["server else"] = cpu_seconds(self._server) - known
        return dict(found)

    def close(self) -> None:
        self._connection.close()


def _cpu_of_backend(pid: int) -> float:
    """Of a process with one thread, in nanoseconds, which is finer than the ticks of `stat`."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return 0.0


def _cpu_of(pid: int) -> float:
    """Of a process with all its threads, also those that have ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def drained(server: Postgres, url: str, count: int, processes: Mapping[str, int]) -> Drained:
    """Enqueue so many, and have one worker process work them off."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "drained.py").write_text(MODULE)
        marks = Marks(folder)
        first, last = _enqueued(url, count)
        command = [sys.executable, "-m", "penstock", "worker", "drained:app", "--queues", "drained"]
        own = {**surroundings(named(url, "worker"), folder), "BENCH_MARKS": folder}
        with psycopg.connect(named(url, "bench-clock"), autocommit=True) as connection:
            held = _number(connection, CLAIMS)
            worker = subprocess.Popen(
                [*command, "--processes", "0"], env={**os.environ, **own}, stderr=subprocess.DEVNULL
            )
            clock = CpuClock(server, url, {**processes, "worker": worker.pid})
            try:
                _until(lambda: marks.total > 0, 0.002)
                before = clock.read()
                _until(lambda: marks.total >= count, 0.01)
                _until(lambda: _number(connection, CLAIMS) <= held, 0.01)
                after = clock.read()
            finally:
                worker.terminate()
                worker.wait(60)
                clock.close()
            row: Any = connection.execute(TIMES, (first, last)).fetchone()
        assert row[1] == count, row
        cpu = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
        return Drained(int(row[0]) / 1e6, cpu)


def _enqueued(url: str, count: int) -> tuple[str, str]:
    """The first and the last id of new jobs."""
    app = Penstock(named(url, "bench-fill"))
    task = app.task(name="noop", queue="drained")(_nothing)
    ids = [job.id for job in task.enqueue_many([(number,) for number in range(count)])]
    app.close()
    return min(ids), max(ids)


async def _nothing(number: int) -> None: ...


def _number(connection: psycopg.Connection[Any], sql: str) -> int:
    row: Any = connection.execute(sql.encode()).fetchone()
    return int(row[0])


def _until(is_so: Any, pause: float) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("the drain does not end")
        time.sleep(pause)


@contextmanager
def watching(
    address: str, cookie: str, watchers: int = WATCHERS, pages: Sequence[str] = PAGES
) -> Iterator[int]:
    """Clients in a process of their own, from their first looks on; its id."""
    command = [sys.executable, "-m", "bench.dashboard_watched", address, cookie, str(watchers), *pages]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    time.sleep(WARM_UP)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def compare(
    server: Postgres,
    url: str,
    board: tuple[int, str, str],
    count: int,
    rounds: int,
    pages: Sequence[str] = PAGES,
) -> Iterator[str]:
    """Drains alone and watched, each first in turns."""
    dashboard, address, cookie = board
    found: dict[bool, list[Drained]] = {False: [], True: []}
    for number in range(rounds):
        for watched in (number % 2 == 1, number % 2 == 0):
            with watching(address, cookie, pages=pages) if watched else nullcontext(0) as watchers:
                time.sleep(0.0 if watched else WARM_UP)
                processes = {"dashboard": dashboard} | ({"watchers": watchers} if watched else {})
                one = drained(server, url, count, processes)
            found[watched].append(one)
            yield f"         {'watched' if watched else 'alone':<8} {one.seconds:.2f} s, {one.total:.2f} s of CPU"
    alone, seen = found[False], found[True]
    times = [statistics.median(one.seconds for one in some) for some in (alone, seen)]
    yield (
        f"drain    {count:,} jobs: {count / times[0]:,.0f} jobs/s alone, {count / times[1]:,.0f} with {WATCHERS}"
        f" watchers: {1 - times[0] / times[1]:.1%} less"
    )
    yield f"         seconds alone {_shown(alone)}; watched {_shown(seen)}"
    names = sorted({name for one in (*alone, *seen) for name in one.cpu})
    for name in names:
        pair = [statistics.median(one.cpu.get(name, 0.0) for one in some) for some in (alone, seen)]
        if max(pair) >= 0.001:
            yield f"         CPU {name:<26} {pair[0] * 1000:>8.0f} ms alone {pair[1] * 1000:>8.0f} ms watched"
    total = [statistics.median(one.total for one in some) for some in (alone, seen)]
    yield f"         CPU {'in all':<26} {total[0] * 1000:>8.0f} ms alone {total[1] * 1000:>8.0f} ms watched"


def _shown(drains: Sequence[Drained]) -> str:
    return ", ".join(f"{one.seconds:.2f}" for one in drains)


def _watch(address: str, cookie: str, watchers: int, pages: Sequence[str]) -> None:
    """Look until the parent ends this process."""

    def look(path: str) -> None:
        tag = ""
        time.sleep(random.random())
        while True:
            with suppress(OSError):
                answer = ask(address + path, headers={"Cookie": cookie, "If-None-Match": tag})
                tag = answer.headers.get("etag", tag)
            time.sleep(1.0)

    for number in range(watchers):
        threading.Thread(target=look, args=(pages[number % len(pages)],), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    _watch(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
