"""`python -m bench`: see --help. `make bench PEERS=none WORKLOADS=drain-1,pick-up ROUNDS=1` sets the same."""

from __future__ import annotations

import argparse
import os
import time
from contextlib import ExitStack
from pathlib import Path

from bench import server
from bench.driver import AgentFailed, bench
from bench.field import CHECKOUT, PEERS, Contender, contenders, versions
from bench.report import Results, console, load, machine, order
from bench.workloads import ALL
from bench.workloads.base import Workload
from tests.servers.postgres import Postgres

PACKAGES = (*PEERS, "asyncpg", "psycopg", "uvloop", "sqlalchemy")


def main() -> None:
    options = _options()
    workloads = _chosen(options.workloads)
    if options.show:
        _show(load(options.show), workloads, options.markdown)
        return
    peers = [] if options.peers == "none" else [name for name in options.peers.split(",") if name]
    systems = contenders(list(PEERS) if peers == ["all"] else peers)
    results = Results(_about(options, systems))
    if options.add and options.json.exists():
        results.rounds = load(options.json).rounds
    with ExitStack() as stack:
        servers = [stack.enter_context(server.running(which)) for which in options.server.split(",")]
        results.about["server"] = ", ".join(server.version(postgres) for postgres in servers)
        _measure(servers, systems, workloads, results, options)
    _show(results, workloads, options.markdown)
    console.print(f"everything is in {options.json}")


def _options() -> argparse.Namespace:
    environ = os.environ.get
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Penstock and its peers, side by side."
    )
    parser.add_argument(
        "--peers", default=environ("PEERS") or "all", help="all, none, or names: pgqueuer,dbos"
    )
    parser.add_argument("--workloads", default=environ("WORKLOADS") or "all", help="all, or names")
    parser.add_argument("--rounds", type=int, default=int(environ("ROUNDS") or 3))
    parser.add_argument(
        "--scale", type=float, default=float(environ("SCALE") or 1), help="0.1: a tenth of the jobs"
    )
    parser.add_argument(
        "--server",
        default=environ("SERVER") or "",
        help="PostgreSQL by version or by the folder of its programs; 15,18: both, in turns",
    )
    parser.add_argument("--json", type=Path, default=CHECKOUT / ".cache" / "bench.json", help="where to save")
    parser.add_argument("--add", action="store_true", help="add to what is saved there")
    parser.add_argument("--show", type=Path, help="print an earlier run instead")
    parser.add_argument("--markdown", action="store_true", help="print the table for a document")
    return parser.parse_args()


def _chosen(names: str) -> list[Workload]:
    if names == "all":
        return list(ALL)
    wanted = names.split(",")
    known = {workload.name: workload for workload in ALL}
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"no such workload: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in wanted]


def _about(options: argparse.Namespace, systems: list[Contender]) -> dict[str, object]:
    found = {name: version for system in systems for name, version in versions(system).items()}
    return {
        "machine": machine(),
        "rounds": options.rounds,
        "scale": options.scale,
        "shares": {system.name: system.share for system in systems},
        "versions": {name: found[name] for name in PACKAGES if name in found},
        "settings": server.SETTINGS,
    }


def _measure(
    servers: list[Postgres],
    systems: list[Contender],
    workloads: list[Workload],
    results: Results,
    options: argparse.Namespace,
) -> None:
    """Round by round, and within a round all systems of a workload back to back, each on all servers."""
    for turn in range(options.rounds):
        for workload in workloads:
            if workload.most_rounds is not None and turn >= workload.most_rounds:
                continue
            for system in systems[turn % 2 :] + systems[: turn % 2]:
                for postgres in servers[turn % 2 :] + servers[: turn % 2]:
                    if system.name in workload.systems:
                        name = system.name if len(servers) == 1 else _on(system, postgres)
                        _measure_one(postgres, system, workload, results, options.scale, turn, name)
            results.save(options.json)


def _measure_one(
    postgres: Postgres,
    system: Contender,
    workload: Workload,
    results: Results,
    scale: float,
    turn: int,
    name: str,
) -> None:
    load_before = os.getloadavg()[0]
    began = time.monotonic()
    try:
        with bench(postgres, system, scale) as place:
            figures = workload.measure(place)
    except AgentFailed as problem:
        console.print(f"[red]{workload.name} {name} failed[/red]: {problem}", markup=True)
        figures = {}
    figures["load"] = load_before
    results.add(workload.name, name, figures)
    text = "  ".join(f"{name} {value:,.2f}" for name, value in figures.items())
    console.print(
        f"round {turn + 1}  {workload.name:<12} {name:<14} {text}  ({time.monotonic() - began:.0f} s)"
    )


def _on(system: Contender, postgres: Postgres) -> str:
    return f"{system.name} {server.version(postgres).split()[1].split('.')[0]}"


def _show(results: Results, workloads: list[Workload], markdown: bool) -> None:
    systems = order({name for rounds in results.rounds.values() for name in rounds})
    measured = [workload for workload in workloads if workload.name in results.rounds]
    if markdown:
        print(results.markdown(measured, systems))
    else:
        console.print(results.table(measured, systems))


if __name__ == "__main__":
    main()
