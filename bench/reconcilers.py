"""`python -m bench.reconcilers`: what reconcilers reach on PostgreSQL. `--url` for a database of your own.

throughput   20 workers; handlers of 1 ms, 50 ms and 1 s; against workers ÷ handler time
hint         from app.hint() to the first line of the handler
idle         statements a second, once an empty reconciler has backed off
crowd        time of a fetch in a table with 1 M rows that are not due, against one without them
recovery     from kill -9 of a process with rows in hand to the first line of their handlers elsewhere
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from sqlalchemy import String, func, insert, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Penstock, Reconcilable
from penstock.testing.drain_rows import ManualReconciler
from tests.servers.postgres import Postgres

WORKERS = 20
LEASE = 5.0


class Base(DeclarativeBase):
    pass


class Row(Base, Reconcilable):
    __tablename__ = "bench_rows"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(20), default="submitted")
    ip: Mapped[str | None] = mapped_column(String(20))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.reconcilers")
    parser.add_argument("--url", help="a PostgreSQL database; otherwise a server is started")
    parser.add_argument("--only", default="throughput,hint,idle,crowd,recovery")
    parser.add_argument("--victim", action="store_true", help="be the process that is killed")
    options = parser.parse_args()
    if options.victim:
        asyncio.run(_hold(options.url))
        return
    with TemporaryDirectory() as folder, server(options.url, Path(folder)) as url:
        for name in options.only.split(","):
            for line in MEASUREMENTS[name](url):
                print(f"{name:<11}{line}", flush=True)


@contextmanager
def server(url: str | None, folder: Path) -> Iterator[str]:
    with nullcontext() if url else Postgres(folder / "server") as started:
        yield url or started.create_database("bench")  # type: ignore[union-attr]


@contextmanager
def fresh(url: str) -> Iterator[Penstock]:
    app = Penstock(url)
    Base.metadata.drop_all(app.database.engine)
    Row.__table__.indexes.clear()  # type: ignore[attr-defined]
    yield app
    app.close()


def fill(app: Penstock, rows: int) -> None:
    Base.metadata.create_all(app.database.engine)
    with app.database.engine.begin() as connection:
        if rows:
            connection.execute(insert(Row), [{"id": number} for number in range(1, rows + 1)])
    with app.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE bench_rows"))


def throughput(url: str) -> Iterator[str]:
    for seconds, rows in ((0.001, 20_000), (0.05, 4_000), (1.0, 200)):
        ideal = WORKERS / seconds
        reached = asyncio.run(_throughput(url, seconds, rows))
        yield f"{seconds * 1000:5.0f} ms handlers: {reached:7.0f} rows/s, {reached / ideal:6.1%} of {ideal:,.0f}"


async def _throughput(url: str, seconds: float, rows: int) -> float:
    with fresh(url) as app:
        done = 0
        first, over = asyncio.Event(), asyncio.Event()

        @app.reconciler(Row, where=Row.status == "submitted", workers=WORKERS, every=3600, name="bench")
        async def provision(_: Any) -> dict[str, Any]:
            nonlocal done
            await asyncio.sleep(seconds)
            done += 1
            first.set()
            if done >= rows:
                over.set()
            return {"status": "active", "ip": "10.0.0.1"}

        fill(app, rows)
        async with app.worker(role="reconciler"):
            await first.wait()
            began, before = time.monotonic(), done
            await over.wait()
            spent = time.monotonic() - began
        with app.database.engine.connect() as connection:
            active = connection.scalar(select(func.count()).where(Row.status == "active"))
        assert active == rows, f"{active} of {rows} applied"
        return (rows - before) / spent


def hint(url: str) -> Iterator[str]:
    times = sorted(asyncio.run(_hint(url, 200)))
    median, high = statistics.median(times), times[int(len(times) * 0.95)]
    yield f"to handler: median {median * 1000:.2f} ms, 95 % under {high * 1000:.2f} ms"


async def _hint(url: str, count: int) -> list[float]:
    with fresh(url) as app:
        seen: asyncio.Queue[float] = asyncio.Queue()

        @app.reconciler(Row, where=Row.status == "submitted", workers=WORKERS, every=3600, name="bench")
        async def provision(_: Any) -> dict[str, Any]:
            seen.put_nowait(time.monotonic())
            return {"status": "active"}

        fill(app, 0)
        times = []
        async with app.worker(role="reconciler"):
            for number in range(count):
                await asyncio.sleep(0.02)
                with app.database.engine.begin() as connection:
                    connection.execute(insert(Row), [{"id": number + 1}])
                began = time.monotonic()
                await app.hint_async(Row)
                times.append(await seen.get() - began)
        return times


def idle(url: str) -> Iterator[str]:
    yield f"{asyncio.run(_idle(url, 20.0)):.2f} statements a second"


async def _idle(url: str, seconds: float) -> float:
    with fresh(url) as app:

        @app.reconciler(Row, where=Row.status == "submitted", workers=WORKERS, every=15, name="bench")
        async def provision(_: Any) -> None: ...

        fill(app, 0)
        async with app.worker(role="reconciler") as worker:
            await asyncio.sleep(8)
            pump = worker.rows.runners["bench"].pump
            with counted(pump.thread.ident if pump.thread else 0) as sent:
                await asyncio.sleep(seconds)
            return len(sent) / seconds


@contextmanager
def counted(thread: int | None) -> Iterator[list[str]]:
    """Every statement that one thread sends, BEGIN and COMMIT included."""
    sent: list[str] = []
    execute = psycopg.Cursor.execute

    def counting(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread:
            sent.append(str(query))
        return execute(self, query, *args, **kwargs)

    psycopg.Cursor.execute = counting  # type: ignore[method-assign]
    try:
        yield sent
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]


def crowd(url: str) -> Iterator[str]:
    with fresh(url) as app:
        reconciler = app.reconciler(Row, where=Row.status == "submitted", every=3600, name="bench")(
            lambda _: None
        )
        fill(app, 1_000)
        hand = ManualReconciler(app, reconciler)
        alone = _fetch_time(hand)
        with app.database.engine.begin() as connection:
            for status, due in (("active", "epoch"), ("submitted", "now() + interval '1 hour'")):
                value = "'epoch'" if due == "epoch" else due
                connection.execute(
                    text(
                        "INSERT INTO bench_rows (id, status, next_process_at, process_attempts) "
                        f"SELECT (SELECT max(id) FROM bench_rows) + n, '{status}', {value}, 0 "
                        "FROM generate_series(1, 500000) n"
                    )
                )
        fill(app, 0)
        crowded = _fetch_time(hand)
        hand.close()
        ratio = f"{crowded / alone:.2f} times"
        yield f"fetch of 20: {alone * 1000:.2f} ms alone, {crowded * 1000:.2f} ms beside 1 M others, {ratio}"


def _fetch_time(hand: ManualReconciler) -> float:
    times = []
    for _ in range(60):
        began = time.monotonic()
        items = hand.take(20)
        times.append(time.monotonic() - began)
        hand.give_back(*items)
    # The faster quarter: a busy machine slows down some fetches, a crowd would slow down all.
    return statistics.quantiles(times[10:], n=4)[0]


def recovery(url: str) -> Iterator[str]:
    for _ in range(3):
        after, late = asyncio.run(_recovery(url))
        yield f"{after:.2f} s from kill -9, {late * 1000:.0f} ms after the end of the lease of {LEASE:g} s"


async def _recovery(url: str) -> tuple[float, float]:
    with fresh(url) as app:
        begun = asyncio.Event()

        @app.reconciler(Row, lease=LEASE, every=3600, name="bench")
        async def provision(_: Any) -> None:
            begun.set()

        fill(app, 1)
        victim = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.reconcilers", "--victim", "--url", url
        )
        held = select(func.count()).where(Row.lock_token.is_not(None))
        with app.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            while not connection.scalar(held):  # noqa: ASYNC110 - another process takes it
                await asyncio.sleep(0.05)
        async with app.worker(role="reconciler") as worker:
            pump = worker.rows.runners["bench"].pump
            while pump._empty_turns < 10:  # noqa: ASYNC110 - until it has backed off
                await asyncio.sleep(0.05)
            victim.kill()
            killed = time.monotonic()
            with app.database.engine.connect() as connection:
                end, now = connection.execute(select(Row.lock_expires_at, func.clock_timestamp())).one()
            await begun.wait()
            after = time.monotonic() - killed
            await victim.wait()
            return after, after - (end - now).total_seconds()


async def _hold(url: str) -> None:
    app = Penstock(url)

    @app.reconciler(Row, lease=LEASE, every=3600, name="bench")
    async def hang(_: Any) -> None:
        await asyncio.Event().wait()

    async with app.worker(role="reconciler"):
        await asyncio.Event().wait()


MEASUREMENTS = {"throughput": throughput, "hint": hint, "idle": idle, "crowd": crowd, "recovery": recovery}

if __name__ == "__main__":
    main()
