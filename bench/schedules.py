"""`python -m bench.schedules`: what schedules cost on PostgreSQL. `--url` for a database of your own.

fire     so many schedules due in the same minute: until all have fired, lateness, statements and CPU a tick
paused   the same look for what is due, with 100,000 paused schedules and without them
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock import Penstock
from penstock.queue import schedule
from penstock.schedules import rows
from penstock.schedules.definition import defined
from penstock.schedules.fire import Firing
from penstock.telemetry import fault_points
from penstock.values.ids import new_ids
from tests.servers.postgres import Postgres

LATENESS = "SELECT lateness FROM {schedule_ticks} WHERE outcome = 'fired' ORDER BY lateness"
EMPTY = ("schedules", "schedule_ticks", "jobs", "job_states", "availabilities")
MANY = 100_000
LOOKS = 500


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.schedules")
    parser.add_argument("--url", help="a PostgreSQL database; otherwise a server is started")
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    with TemporaryDirectory() as folder, server(options.url, Path(folder)) as url:
        app = Penstock(url)
        app.migrate()
        for line in (*fire(app, options.count), *paused(app)):
            print(line, flush=True)
        app.close()


@contextmanager
def server(url: str | None, folder: Path) -> Iterator[str]:
    with nullcontext() if url else Postgres(folder / "server") as started:
        yield url or started.create_database("bench")  # type: ignore[union-attr]


def fill(app: Penstock, count: int, *, due: bool) -> None:
    """So many schedules with ticks every minute: due now, or paused."""
    for table in EMPTY:
        app.database.in_transaction(lambda tx, table=table: tx.run(f"DELETE FROM {{{table}}}"))  # type: ignore[misc]

    @app.task(name="tick")
    def tick(number: int) -> int:
        return number

    one = rows.columns_of(defined(tick, {"cron": "* * * * *", "args": (1,)}))
    now = app.database.read(rows.clock)
    minute = now // 60_000_000 * 60_000_000
    state = {"source": "api", "revision": "", "superseded": "[]", "next_at": minute, "now": now}
    state |= {"due_at": minute if due else None, "paused_at": None if due else now}
    ids = new_ids(count)
    for start in range(0, count, 2000):
        made = [{**one, **state, "id": id, "name": id} for id in ids[start : start + 2000]]
        app.database.in_transaction(
            lambda tx, made=made: tx.insert("schedules", made, created_at=":now", updated_at=":now")  # type: ignore[misc]
        )


def fire(app: Penstock, count: int) -> Iterator[str]:
    fill(app, count, due=True)
    statements = 0

    def counted(point: str) -> None:
        nonlocal statements
        statements += point.rpartition(".")[2].isdigit()

    firing = Firing(app)
    wall, cpu = time.perf_counter(), time.process_time()
    with fault_points.watching(counted):
        while firing.turn():
            pass
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    late = [int(row[0]) / 1e6 for row in app.database.read(lambda tx: tx.rows(LATENESS))]
    spread = late[int(len(late) * 0.99)] - late[0]
    fired = f"{len(late):,} schedules by one worker in {wall:.2f} s"
    yield f"fire     {fired}; the 99th of 100 fired {spread:.2f} s after the first"
    yield f"         {statements / len(late):.3f} statements and {cpu / len(late) * 1e6:.0f} µs of CPU a tick"


def paused(app: Penstock) -> Iterator[str]:
    times = {}
    for count in (0, MANY, 0, MANY):
        fill(app, count, due=False)
        app.database.read(schedule.look)
        began = time.process_time(), time.perf_counter()
        for _ in range(LOOKS):
            app.database.read(schedule.look)
        took = (time.perf_counter() - began[1]) / LOOKS * 1e6
        times[count] = min(took, times.get(count, took))
    yield f"paused   a look takes {times[0]:.0f} µs without schedules, {times[MANY]:.0f} µs with {MANY:,} paused"


if __name__ == "__main__":
    main()
