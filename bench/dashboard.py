"""`python -m bench.dashboard`: what the dashboard costs on PostgreSQL with years of work in its tables.

pages    server time of every page, p50 and p95, and the slowest statement of each, as the server's log tells
paint    first contentful paint of every page, in Chromium
memory   of the process of `penstock dashboard` that has served them all
watch    CPU that ten clients cost while jobs keep coming: of the dashboard, and of the server
drain    20,000 jobs drained alone, and while ten clients watch: seconds, and CPU of all who took part; `--jobs`
         for other numbers

`--finished 1000000` for less; `--folder` keeps the server's data, and a second call finds it filled.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from json import dumps, loads
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg

from bench.dashboard_operations import SCHEDULE, declare, fill_operations
from bench.dashboard_tables import Loaded, Multiplied, Size, load
from bench.dashboard_watched import MODULE, WATCHERS, compare, named, surroundings, watching
from bench.server import SETTINGS, cpu_seconds
from penstock import Penstock
from penstock.dashboard import Request, Viewer
from penstock.dashboard.http import read_query
from tests.pages import addresses as dashboard_pages
from tests.servers.chromium import chromium
from tests.servers.postgres import Postgres
from tests.web import ask

TIMES = 30
WATCH_SECONDS = 20
LOGGED = "logged"
"""A role whose statements the server's log tells: those of nothing else, for to log them costs time too."""
DURATION = re.compile(
    r"duration: ([0-9.]+) ms  (?:execute|statement)[^:]*: (.*?)(?=\n\S* *LOG|\Z)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class PageFigures:
    path: str
    p50: float
    p95: float
    statements: int
    slowest: float
    """In milliseconds, on the server."""
    sql: str


def main() -> None:
    options = _options()
    with _server(options.folder) as server:
        url = server.url("dashboard")
        loaded = _filled(server, url, options)
        if "pages" in options.parts:
            for line in pages(server, url, loaded):
                print(line, flush=True)
        if "paint" in options.parts:
            print(paint(url, loaded), flush=True)
        if "memory" in options.parts:
            print(memory(url, loaded), flush=True)
        if "watch" in options.parts:
            print(watch(server, url), flush=True)
        if "drain" in options.parts:
            for line in drain(server, url, options.jobs, options.rounds):
                print(line, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard")
    parser.add_argument("--finished", type=int, default=10_000_000)
    parser.add_argument("--pending", type=int, help="a tenth of the finished ones, unless given")
    parser.add_argument("--runs", type=int, help="a hundredth")
    parser.add_argument("--elements", type=int, help="of one run; a tenth")
    parser.add_argument("--rounds", type=int, default=6, help="of the drain")
    parser.add_argument("--jobs", type=int, nargs="+", default=[20_000], help="of the drain")
    parser.add_argument("--parts", default="pages,paint,memory,watch,drain")
    parser.add_argument("--folder", type=Path, help="where the server's data stay")
    return parser.parse_args()


@contextmanager
def _server(folder: Path | None) -> Iterator[Postgres]:
    settings = {**SETTINGS, "log_line_prefix": "%a "}
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            Path(name).chmod(0o711)
            with Postgres(Path(name) / "server", settings) as server:
                yield server
        return
    server = Postgres(folder, settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _filled(server: Postgres, url: str, options: argparse.Namespace) -> Loaded:
    known = server.folder / "loaded.json"
    if known.exists():
        return Loaded(**loads(known.read_text()))
    many = options.finished
    size = Size(
        many,
        many // 10 if options.pending is None else options.pending,
        many // 100 if options.runs is None else options.runs,
        many // 10 if options.elements is None else options.elements,
    )
    server.create_database("dashboard")
    began = time.monotonic()
    app = Penstock(url)
    app.migrate()
    loaded = load(app, size)
    loaded = replace(loaded, limit=fill_operations(app, Multiplied(app), many))
    app.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    print(f"filled: {asdict(size)} in {time.monotonic() - began:.0f} s", flush=True)
    known.write_text(dumps(asdict(loaded)))
    return loaded


# pages


def addresses(loaded: Loaded) -> list[str]:
    """Every page, with ids that there are, and the filters and windows that people use."""
    ids = {"jobs": [loaded.job], "runs": [loaded.large_run]}
    views = {
        f"/runs/{loaded.large_run}": ["step=task-0", "step=task-0&state=failed", "step=task-0&path=7"],
        "/limits": [f"key={quote(loaded.limit, '')}"],
    }
    found = dashboard_pages(ids, {"pipeline": ["small"], "schedule": [SCHEDULE]}, views)
    more = [
        "/jobs?status=failed",
        "/jobs?status=available&queue=queue-3",
        "/jobs?status=succeeded&task=shop.task-7",
        "/jobs?task=shop.nothing",
        "/runs?status=failed",
        "/runs?pipeline=small",
        f"/runs/{loaded.run}",
    ]
    return list(dict.fromkeys([*found, *more]))


def pages(server: Postgres, url: str, loaded: Loaded) -> Iterator[str]:
    app = Penstock(_logged(url))
    declare(app)
    board = app.dashboard(guard=lambda _: Viewer("bench", "all"))
    log = server.folder / "server.log"
    yield f"{'page':<60} {'p50 ms':>8} {'p95 ms':>8} {'statements':>10} {'slowest ms':>10}"
    for path in addresses(loaded):
        where, _, query = path.partition("?")
        request = Request("GET", where, query=read_query(query))
        board.respond(request)
        start, times, status = log.stat().st_size, [], 0
        for _ in range(TIMES):
            began = time.perf_counter()
            status = board.respond(request).status
            times.append((time.perf_counter() - began) * 1000)
        figures = _figures(path, times, log, start)
        mark = "" if status in (200, 303) else f"  ({status})"
        yield (
            f"{path:<60} {figures.p50:>8.1f} {figures.p95:>8.1f} {figures.statements:>10}"
            f" {figures.slowest:>10.1f}{mark}"
        )
        if figures.slowest > 20:
            yield f"    {' '.join(figures.sql.split())[:300]}"
    app.close()


def _logged(url: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [LOGGED]).fetchall():
            connection.execute(f"CREATE ROLE {LOGGED} SUPERUSER LOGIN")
        connection.execute(f"ALTER ROLE {LOGGED} SET log_min_duration_statement = 0")
    return url.replace("//postgres@", f"//{LOGGED}@")


def _figures(path: str, times: list[float], log: Path, start: int) -> PageFigures:
    time.sleep(0.2)
    with log.open("rb") as file:
        file.seek(start)
        told = DURATION.findall(file.read().decode(errors="replace"))
    slowest = max(told, key=lambda pair: float(pair[0]), default=("0", ""))
    middle = statistics.median(times)
    return PageFigures(
        path, middle, sorted(times)[int(len(times) * 0.95)], len(told) // TIMES, float(slowest[0]), slowest[1]
    )


# paint

PAINT = "() => (performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime"


def paint(url: str, loaded: Loaded) -> str:
    """Milliseconds from the click to the first text on the screen, with an empty cache and with a full one."""
    worst: dict[str, tuple[float, str]] = {}
    with served(url) as (_, address, signed_in), chromium() as browser:
        name, _, value = signed_in["Cookie"].partition("=")
        for path in addresses(loaded):
            with browser.new_context() as context:
                context.add_cookies([{"name": name, "value": value, "url": address}])
                page = context.new_page()
                for state in ("empty", "full"):
                    page.goto(address + path)
                    page.wait_for_function(PAINT)
                    worst[state] = max(worst.get(state, (0.0, "")), (float(page.evaluate(PAINT)), path))
    told = [f"{time:.0f} ms ({path}) with the cache {state}" for state, (time, path) in worst.items()]
    return f"paint    slowest first paint {', '.join(told)}"


# memory


def memory(url: str, loaded: Loaded) -> str:
    with served(url) as (process, address, signed_in):
        first = psutil.Process(process.pid).memory_info().rss
        for _ in range(5):
            for path in addresses(loaded):
                ask(address + path, headers=signed_in)
        last = psutil.Process(process.pid).memory_info().rss
    return f"memory   {last / 2**20:.0f} MB after every page five times; {first / 2**20:.0f} MB when it began"


Served = tuple[subprocess.Popen[str], str, dict[str, str]]


@contextmanager
def served(url: str) -> Iterator[Served]:
    """`penstock dashboard` in a process of its own, its address, and the cookie of one who has opened its link."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "drained.py").write_text(MODULE)
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "dashboard", "drained:app", "--port", "0"],
            env={**os.environ, **surroundings(named(url, "dashboard"), folder), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        link = next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
        opened = ask(link)
        try:
            cookie = opened.headers["set-cookie"].partition(";")[0]
            yield process, link.rpartition("/login")[0], {"Cookie": cookie}
        finally:
            process.terminate()
            process.wait(30)


# watch


def watch(server: Postgres, url: str) -> str:
    app = Penstock(url)
    task = app.task(name="noop", queue="watched")(_nothing)
    with served(url) as (process, address, signed_in):
        dashboard = psutil.Process(process.pid)
        costs = []
        for look in (nullcontext(), watching(address, signed_in["Cookie"])):
            with look:
                began, before = sum(dashboard.cpu_times()[:2]), cpu_seconds(server)
                for number in range(2 * WATCH_SECONDS):
                    task.enqueue(number)
                    time.sleep(0.5)
                costs.append((sum(dashboard.cpu_times()[:2]) - began, cpu_seconds(server) - before))
    app.close()
    ours, theirs = [(watched - alone) / WATCH_SECONDS * 1000 for alone, watched in zip(*costs, strict=True)]
    cost = f"{ours:.0f} ms of CPU a second in the dashboard, {theirs:.0f} in the server"
    return f"watch    {WATCHERS} watchers cost {cost}"


# drain


def drain(server: Postgres, url: str, sizes: Sequence[int], rounds: int) -> Iterator[str]:
    with served(url) as (process, address, signed_in):
        for jobs in sizes:
            yield from compare(server, url, (process.pid, address, signed_in["Cookie"]), jobs, rounds)


async def _nothing(number: int) -> None: ...


if __name__ == "__main__":
    main()
