"""Weighs each part of the fast path by itself: `python -m bench.parts` (see --help).

Penstock with all parts and Penstock without one of them take turns on one PostgreSQL, pair by pair. A figure is the
gain of the part: how much better the run with it was than the run without it right before or after. The parts are
those of `FastPath` in `penstock/database/dialect.py`; `settle` takes `presume` and `plan` with it, and `all` leaves
every part out. With `--away 0.5` the server is half a millisecond away: round trips have their price then.

`BENCH_WITHOUT=claim,offer` in the environment leaves parts out in the processes of any benchmark. Only the benchmark's
own app reads it: it is no setting of Penstock.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from rich.table import Table

from bench import server
from bench.counting import relay
from bench.driver import bench
from bench.field import CHECKOUT, Contender
from bench.report import Results, console, machine, shown
from bench.systems.penstock import WITHOUT
from bench.workloads import ALL
from bench.workloads.base import Figures, Workload
from penstock.database.dialect import FastPath
from tests.servers.postgres import Postgres

FIGURES = {"drain-1": "jobs", "runs": "steps", "steps": "p50", "pick-up": "p50"}
"""The figure by which each workload is weighed."""
HIGHER_IS_BETTER = {"jobs", "steps"}
PARTS = (*FastPath._fields, "all")
Gains = dict[tuple[str, str], list[float]]


def main() -> None:
    options = _options()
    workloads = [workload for workload in ALL if workload.name in options.workloads.split(",")]
    parts = options.parts.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        raise SystemExit(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    results = Results({"machine": machine(), "rounds": options.rounds, "scale": options.scale})
    gains: Gains = defaultdict(list)
    with server.running(options.server) as postgres:
        for turn in range(options.rounds):
            for workload in workloads:
                for part in parts:
                    pair = _pair(postgres, workload, part, options.scale, options.away / 1000, turn, results)
                    gains[workload.name, part].append(_gain(workload, *pair))
            results.save(options.json)
    console.print(_table(workloads, parts, gains))
    console.print(f"everything is in {options.json}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.parts", description="What each part of the fast path is worth by itself."
    )
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--workloads", default=",".join(FIGURES), help=f"of {', '.join(FIGURES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="0.1: a tenth of the jobs")
    parser.add_argument("--server", default="", help="PostgreSQL by version or by the folder of its programs")
    parser.add_argument("--away", type=float, default=0.0, help="milliseconds to the server, and back again")
    parser.add_argument("--json", type=Path, default=CHECKOUT / ".cache" / "parts.json", help="where to save")
    return parser.parse_args()


def _pair(
    postgres: Postgres, workload: Workload, part: str, scale: float, away: float, turn: int, results: Results
) -> tuple[Figures, Figures]:
    """With and without the part; which of them is first changes from round to round."""
    found: dict[str, Figures] = {}
    for left_out in ("", part) if turn % 2 else (part, ""):
        with (
            _leaving_out(left_out),
            relay(postgres.port, away) as way,
            bench(postgres, Contender("penstock", sys.executable), scale) as place,
        ):
            place.port = way.port if away else postgres.port
            found[left_out] = workload.measure(place)
        results.add(workload.name, f"without {part}" if left_out else f"with {part}", found[left_out])
    figure = FIGURES[workload.name]
    both = f"with {shown(found[''][figure])}, without {shown(found[part][figure])}"
    console.print(f"round {turn + 1}  {workload.name:<8} {part:<8} {both}")
    return found[""], found[part]


@contextmanager
def _leaving_out(parts: str) -> Iterator[None]:
    os.environ[WITHOUT] = parts
    try:
        yield
    finally:
        del os.environ[WITHOUT]


def _gain(workload: Workload, with_it: Figures, without: Figures) -> float:
    """Percent; above nothing, the part pays."""
    figure = FIGURES[workload.name]
    better, worse = with_it[figure], without[figure]
    ratio = better / worse if figure in HIGHER_IS_BETTER else worse / better
    return 100 * (ratio - 1)


def _table(workloads: list[Workload], parts: list[str], gains: Gains) -> Table:
    table = Table(title="gain by each part, percent: median (least to most) over the rounds")
    table.add_column("workload")
    for part in parts:
        table.add_column(part, justify="right")
    for workload in workloads:
        values = [gains[workload.name, part] for part in parts]
        cells = [f"{shown(median(one))} ({shown(min(one))} .. {shown(max(one))})" for one in values]
        table.add_row(f"{workload.title}, {FIGURES[workload.name]}", *cells)
    return table


if __name__ == "__main__":
    main()
