"""`python -m bench.dashboard_others sqlite|mariadb`: server time of every page, and its slowest statement.

Finished work is made by a worker and multiplied by SQL, as for the tests of plans: `--rows` of each kind, which are
finished jobs, dead letters, runs with a step each, and elements of one run. Statements are timed in this process, with
the reading of their rows. CPU is that of this process and of the server, by page. `--folder` keeps the data.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from json import dumps, loads
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil

from penstock import Penstock
from penstock.dashboard import Request, Viewer
from penstock.dashboard.http import read_query
from penstock.database.transaction import Transaction
from penstock.operate.pages.charts import Period
from tests.plans.page_history import History, make_history
from tests.plans.test_pages import every_address
from tests.servers.mariadb import Mariadb

TIMES = 20
QUEUES = 20
TASKS = 100
OUTCOMES = ("succeeded", "errored", "retried")
CHUNK = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard_others")
    parser.add_argument("database", choices=("sqlite", "mariadb"))
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--pending", type=int, default=30_000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        folder.mkdir(exist_ok=True)
        url, server = f"sqlite:///{folder}/bench.db", None
        if options.database == "mariadb":
            folder.chmod(0o711)
            server = Mariadb(folder / "server")
            server.start()
            stack.callback(server.stop)
            url = server.url("dashboard")
        history = _filled(url, folder, options, server)
        for line in _pages(url, history, [os.getpid()] + ([server.process_id] if server else [])):
            print(line, flush=True)


def _filled(url: str, folder: Path, options: argparse.Namespace, server: Mariadb | None) -> History:
    known = folder / "history.json"
    if known.exists():
        return History(**loads(known.read_text()))
    if server is not None:
        server.create_database("dashboard")
    began = time.monotonic()
    app = Penstock(url)
    app.migrate()
    history = make_history(app, options.rows)
    for queue in range(QUEUES):
        task = app.task(name=f"shop.task-{queue}", queue=f"queue-{queue}")(_nothing)
        task.enqueue_many([(number,) for number in range(options.pending // QUEUES)])
    _fill_rollups(app)
    for table in ("jobs", "job_states", "executions", "dead_letters", "runs"):
        kind = "ANALYZE" if server is None else "ANALYZE TABLE"
        with app.database.engine.connect() as connection:
            connection.exec_driver_sql(f"{kind} penstock_{table}")
    app.close()
    known.write_text(dumps(asdict(history)))
    print(f"filled: {options.rows:,} of each kind in {time.monotonic() - began:.0f} s", flush=True)
    return history


def _nothing(number: int) -> None: ...


def _fill_rollups(app: Penstock) -> None:
    """Those that the charts read: a row for each task and outcome of each moment."""
    now = app.database.read(lambda tx: int(tx.rows("SELECT {now}")[0][0]))
    rolled: list[dict[str, object]] = []
    samples: list[dict[str, object]] = []
    for period in Period:
        for begin in period.begins(now):
            key: dict[str, object] = {"span": period.span.value, "begins_at": begin}
            counts: dict[str, object] = {
                "attempts": 50,
                "failed": 0,
                "run_micros": 900_000,
                "longest": 60_000,
            }
            rolled += [
                {**key, "task": f"shop.task-{task}", "queue": f"queue-{task % QUEUES}", "outcome": outcome}
                | counts
                for task in range(TASKS)
                for outcome in OUTCOMES
            ]
            samples += [
                {**key, "queue": f"queue-{queue}", "available": 100, "lag": 1_000_000}
                for queue in range(QUEUES)
            ]

    def write(tx: Transaction, table: str, rows: list[dict[str, object]]) -> None:
        tx.insert(table, rows, ignore_duplicates=True)

    for table, rows in (("rollups", rolled), ("queue_samples", samples)):
        for start in range(0, len(rows), CHUNK):
            app.database.in_transaction(write, table, rows[start : start + CHUNK])


def _pages(url: str, history: History, processes: Sequence[int]) -> Iterator[str]:
    app = Penstock(url)
    board = app.dashboard(guard=lambda _: Viewer("bench", "all"))
    yield f"{'page':<60} {'p50 ms':>8} {'p95 ms':>8} {'CPU ms':>8} {'statements':>10} {'slowest ms':>10}"
    for path in dict.fromkeys(every_address(history)):
        where, _, query = path.partition("?")
        request = Request("GET", where, query=read_query(query))
        board.respond(request)
        times: list[float] = []
        cpu = _cpu(processes)
        with _statements() as told:
            for _ in range(TIMES):
                began = time.perf_counter()
                status = board.respond(request).status
                times.append((time.perf_counter() - began) * 1000)
        cpu = (_cpu(processes) - cpu) / TIMES * 1000
        slowest, sql = max(told, default=(0.0, ""))
        p95 = sorted(times)[int(len(times) * 0.95)]
        mark = "" if status in (200, 303) else f"  ({status})"
        yield (
            f"{path:<60} {statistics.median(times):>8.1f} {p95:>8.1f} {cpu:>8.1f} {len(told) // TIMES:>10}"
            f" {slowest:>10.1f}{mark}"
        )
        if slowest > 20:
            yield f"    {' '.join(sql.split())[:300]}"
    app.close()


def _cpu(processes: Sequence[int]) -> float:
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in processes)


@contextmanager
def _statements() -> Iterator[list[tuple[float, str]]]:
    """Milliseconds and text of every statement that is executed and read inside."""
    told: list[tuple[float, str]] = []
    rows = Transaction.rows

    def timed(tx: Transaction, template: str, **parameters: Any) -> Any:
        began = time.perf_counter()
        try:
            return rows(tx, template, **parameters)
        finally:
            told.append(((time.perf_counter() - began) * 1000, template))

    with patch.object(Transaction, "rows", timed):
        yield told


if __name__ == "__main__":
    main()
