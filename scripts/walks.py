"""Counts the modules of `penstock` that six walks go through, and the hops between them.

    .venv/bin/python scripts/walks.py              on SQLite
    .venv/bin/python scripts/walks.py --postgres   on a PostgreSQL of its own

A profiler hook sees every call in the threads of a walk. A *hop* is a call in another module than the call before it in
the same thread; code that runs when a module is imported does not count. *Core* leaves out `database/`, `values/` and
`telemetry/`. The first rounds of a walk only warm it up; of the others the median is shown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median_low
from typing import Any, NamedTuple

from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench import server  # noqa: E402
from penstock import Penstock, Reconcilable  # noqa: E402
from penstock.cli.main import main as command_line  # noqa: E402
from penstock.runtime.pump.pump import Pump  # noqa: E402
from penstock.testing import drain  # noqa: E402

PACKAGE = f"{ROOT}/penstock/"
BESIDE = ("database/", "values/", "telemetry/")
WARM, ROUNDS = 6, 5
URL, FLAG, OUT = "WALKS_URL", "WALKS_FLAG", "WALKS_OUT"


class Walk(NamedTuple):
    """What one round of a walk went through, in each kind of thread."""

    modules: set[str]
    hops: int

    @property
    def core(self) -> set[str]:
        return {name for name in self.modules if not name.startswith(BESIDE)}


class Recorder:
    """The profiler hook, and what it has seen since the last `begin`."""

    def __init__(self) -> None:
        self.on = False
        self.names: dict[str, str | None] = {}
        self.seen: dict[str, list[str]] = defaultdict(list)

    def install(self) -> None:
        threading.setprofile(self.hook)
        sys.setprofile(self.hook)

    def hook(self, frame: Any, event: str, _arg: object) -> None:
        if event != "call" or not self.on or frame.f_code.co_name == "<module>":
            return
        file = frame.f_code.co_filename
        name = self.names.get(file, "")
        if name == "":
            name = self.names[file] = file.removeprefix(PACKAGE) if file.startswith(PACKAGE) else None
        if name is not None:
            calls = self.seen[threading.current_thread().name]
            if not calls or calls[-1] != name:
                calls.append(name)

    def begin(self) -> None:
        self.seen.clear()
        self.on = True

    def end(self, *threads: str) -> Walk:
        """What was seen in the threads whose names begin so; in all of them, if none are named."""
        self.on = False
        walked = [calls for name, calls in self.seen.items() if not threads or name.startswith(threads)]
        return Walk({name for calls in walked for name in calls}, sum(map(len, walked)))


RECORDER = Recorder()
Told = dict[str, list[Walk]]


class Base(DeclarativeBase):
    """Tables of the walks."""


class Volume(Reconcilable, Base):
    """A row for the reconciler."""

    __tablename__ = "walks_volumes"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(default="new")


def declare(url: str) -> Penstock:
    app = Penstock(url)

    @app.task(name="more")
    async def more(number: int) -> int:
        return number + 1

    @app.task(name="numbers")
    async def numbers(width: int) -> list[int]:
        return list(range(width))

    @app.task(name="slow")
    def slow(file: str) -> None:
        with Path(file).open("a") as log:
            log.write(f"{os.getpid()}\n")
        if len(Path(file).read_text().splitlines()) == 1:
            time.sleep(60)

    @app.pipeline(name="chain")
    def chain(number: int) -> object:
        return more(more(more(more(more(number)))))

    @app.pipeline(name="spread")
    def spread(width: int) -> object:
        return more.map(numbers(width)).collect()

    return app


# Walks in this process, beside a worker


def beside_a_worker(app: Penstock, walk: Callable[[], Awaitable[None]]) -> None:
    async def both() -> None:
        async with app.worker(concurrency=4):
            await walk()

    asyncio.run(both())


async def in_caller(work: Callable[[], object]) -> None:
    """In a thread of its own, that is seen."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="caller").start()
    await done.wait()
    if errors:
        raise errors[0]


def job(app: Penstock, told: Told) -> None:
    async def walk() -> None:
        for number in range(WARM + ROUNDS):
            await asyncio.sleep(0.1)
            RECORDER.begin()
            await in_caller(lambda: app.find_task("more").enqueue(1).result(30))  # type: ignore[union-attr]
            await asyncio.sleep(0.05)
            if number >= WARM:
                told["1 enqueue, claim, run, settle, result"].append(
                    RECORDER.end("caller", "MainThread", "penstock-pump")
                )

    beside_a_worker(app, walk)


def step(app: Penstock, told: Told) -> None:
    """One turn of the pump that settles a step and holds the next."""
    found: list[Walk] = []
    before = Pump._settle_and_claim

    def settle_and_claim(self: Any, tx: Any, finished: Any, limit: int) -> Any:
        claims = before(self, tx, finished, limit)
        self.is_a_walk = bool(finished and claims and claims[0].run_id)
        return claims

    turn = Pump._turn

    def watched(self: Any) -> Any:
        self.is_a_walk = False
        RECORDER.begin()
        result = turn(self)
        walk = RECORDER.end("penstock-pump")
        if self.is_a_walk:
            found.append(walk)
        return result

    async def walk() -> None:
        for _ in range(WARM + ROUNDS):
            await in_caller(lambda: app.pipelines["chain"].trigger(1).result(30))

    Pump._settle_and_claim, Pump._turn = settle_and_claim, watched  # type: ignore[method-assign]
    try:
        beside_a_worker(app, walk)
    finally:
        Pump._settle_and_claim, Pump._turn = before, turn  # type: ignore[method-assign]
    told["2 one turn: a step settles, the next is held"] += found[-3 * ROUNDS :]


def expand(app: Penstock, told: Told) -> None:
    async def walk() -> None:
        for width, records in ((10, False), (2500, True)):
            if records:
                RECORDER.begin()
            await in_caller(lambda width=width: app.pipelines["spread"].trigger(width).result(120))  # type: ignore[misc]
        seen = dict(RECORDER.seen)
        told["3 a large expand: all threads"].append(RECORDER.end())
        for thread in ("penstock-pump", "penstock-housekeeping"):
            RECORDER.seen = defaultdict(list, seen)
            told[f"3 a large expand: {thread.removeprefix('penstock-')}"].append(RECORDER.end(thread))

    beside_a_worker(app, walk)


def row(app: Penstock, told: Told) -> None:
    @app.reconciler(Volume, where=Volume.status == "new", every=60, lease=30)
    async def provision(_item: Any) -> dict[str, Any]:
        return {"status": "ready"}

    Base.metadata.create_all(app.database.engine)

    async def walk() -> None:
        for number in range(WARM + ROUNDS):
            await asyncio.sleep(0.2)
            RECORDER.begin()
            await in_caller(lambda: add_row(app))
            await asyncio.sleep(0.3)
            seen = RECORDER.seen
            pump = next(
                (name for name in seen if name.startswith("penstock-pump of ") and "jobs" not in name), "-"
            )
            if number >= WARM:
                told["4 a row from hint to apply: its pump"].append(RECORDER.end(pump))

    beside_a_worker(app, walk)


def add_row(app: Penstock) -> None:
    with Session(app.database.engine) as session:
        session.add(Volume())
        session.commit()
    app.hint(Volume)


# Walks in processes of their own


def dead_child(app: Penstock, told: Told) -> None:
    """A handler's process is killed; from then on the supervisor is watched, until another has done the work."""
    with tempfile.TemporaryDirectory() as folder:
        file, flag, out = (Path(folder, name) for name in ("pids", "flag", "out"))
        given = {FLAG: str(flag), OUT: str(out)}
        supervisor = subprocess.Popen(
            [sys.executable, __file__, "--inside", "supervise"],
            env={**os.environ, **given},
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        handle = app.find_task("slow").enqueue(str(file))  # type: ignore[union-attr]
        until(file.exists)
        time.sleep(0.3)
        flag.touch()
        time.sleep(0.2)
        os.kill(int(file.read_text()), signal.SIGKILL)
        handle.result(60)
        flag.unlink()
        until(out.exists)
        supervisor.send_signal(signal.SIGTERM)
        supervisor.wait(60)
        for thread, (modules, hops) in json.loads(out.read_text()).items():
            told[f"5 kill -9 of a child: {thread}"].append(Walk(set(modules), hops))


def supervise() -> None:
    """In the supervisor: what is called in each of its threads, from the moment the flag is there until the end."""
    own, flag = os.getpid(), Path(os.environ[FLAG])
    RECORDER.install()

    def write() -> None:
        until(flag.exists)
        RECORDER.begin()
        until(lambda: not flag.exists())
        RECORDER.on = False
        seen = {name: (sorted(set(calls)), len(calls)) for name, calls in RECORDER.seen.items()}
        part = Path(f"{os.environ[OUT]}.part")
        part.write_text(json.dumps(seen))
        part.rename(os.environ[OUT])

    if os.getpid() == own:
        threading.Thread(target=write, name="watch", daemon=True).start()
    command_line(["worker", "scripts.walks:app", "--processes", "1"])


def show(app: Penstock, told: Told) -> None:
    run = app.pipelines["chain"].trigger(1)
    drain(app)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        arguments = [sys.executable, __file__, "--inside", "show", run.id]
        subprocess.run(
            arguments, env={**os.environ, OUT: str(out)}, cwd=ROOT, check=True, stdout=subprocess.DEVNULL
        )
        modules, hops = json.loads(out.read_text())
    told["6 penstock show RUN"].append(Walk(set(modules), hops))


def show_inside(run: str) -> None:
    RECORDER.install()
    RECORDER.begin()
    try:
        command_line(["show", run, "--app", "scripts.walks:app"])
    finally:
        walk = RECORDER.end()
        Path(os.environ[OUT]).write_text(json.dumps([sorted(walk.modules), walk.hops]))


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


WALKS = (job, step, expand, row, dead_child, show)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count modules and hops of six walks.")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of its own, not on SQLite")
    parser.add_argument("--modules", action="store_true", help="name the modules of each walk")
    parser.add_argument("--only", type=int, help="one walk, by its number")
    parser.add_argument("--inside", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        supervise() if options.inside[0] == "supervise" else show_inside(options.inside[1])
        return
    RECORDER.install()
    told: Told = defaultdict(list)
    with database(options.postgres) as url:
        os.environ[URL] = url
        for number, walk in enumerate(WALKS, 1):
            if options.only in (None, number):
                walk(declare(url), told)
    report(told, options.modules)


@contextmanager
def database(postgres: bool) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, server.running() if postgres else nullcontext() as started:
        url = server.Database(started, "walks").url if started is not None else f"sqlite:///{folder}/walks.db"
        declare(url).migrate()
        yield url


def report(told: Told, names: bool) -> None:
    print("| walk | modules | of them core | hops |\n|---|---:|---:|---:|")
    for title, walks in told.items():
        modules = median_low(len(walk.modules) for walk in walks)
        core = median_low(len(walk.core) for walk in walks)
        print(f"| {title} | {modules} | {core} | {median_low(walk.hops for walk in walks)} |")
        if names:
            print("   ", " ".join(sorted(walks[-1].modules)))


if URL in os.environ:
    app = declare(os.environ[URL])

if __name__ == "__main__":
    main()
