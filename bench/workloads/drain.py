"""Draining a queue of no-op async jobs, from the first handler to the last durable outcome."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.counting import relay
from bench.driver import TICK, Agent, Bench
from bench.server import cpu_seconds
from bench.workloads.base import Figures, Workload
from penstock import Penstock

JOBS = 20_000
MANY = 100_000
PATIENCE = 120
CALM = 2.0
LATEST = "SELECT coalesce(max(started_at), 0) FROM penstock_processes"
TOOK = """
SELECT max(finished_at) - min(started_at) FROM penstock_executions
WHERE started_at > (SELECT max(started_at) FROM penstock_processes)
"""
STARTED = "SELECT count(*) FROM penstock_processes WHERE started_at > {}"
SCALE = (1, 2, 4, 8, 16)


def drain(bench: Bench, processes: int = 1) -> Figures:
    count = bench.size(JOBS)
    bench.do("fill", count=count)
    return run_down(bench, count, processes)


def scale(bench: Bench, measure: Callable[[Bench, int], Figures] = drain) -> Figures:
    """More processes than cores must not be slower than few."""
    figures: Figures = {}
    for processes in SCALE:
        bench.marks.reset()
        figures |= {f"{name} {processes}": value for name, value in measure(bench, processes).items()}
        for agent in bench.agents:
            agent.kill()
        bench.agents.clear()
    return figures


def drain_started(bench: Bench, processes: int) -> Figures:
    """By workers that have started before: they wait at a paused queue, which is then resumed."""
    count = bench.size(MANY)
    with Penstock(bench.url) as app:
        app.pause_queue("default")
        bench.do("fill", count=count)
        agents = [bench.start("work", slot=slot, executor=slot) for slot in range(processes)]
        started = STARTED.format(bench.database.number(LATEST))
        for agent in agents:
            agent.go()
        bench.wait(lambda: bench.database.number(started) >= processes, PATIENCE, pause=0.1)
        time.sleep(CALM)
        return _drained(bench, agents, count, lambda: app.resume_queue("default"))


def drain_supervised(bench: Bench, processes: int) -> Figures:
    """By the children of one supervisor, that have started before. Times are those on record."""
    count = bench.size(MANY)
    with Penstock(bench.url) as app:
        app.pause_queue("default")
        bench.do("fill", count=count)
        started = STARTED.format(bench.database.number(LATEST))
        supervisor = bench.start("supervise", processes=processes, tasks_only=True)
        supervisor.go()
        bench.wait(lambda: bench.database.number(started) > processes, PATIENCE, pause=0.1)
        time.sleep(CALM)
        before, server = family_cpu(supervisor), cpu_seconds(bench.server)
        app.resume_queue("default")
        if not bench.wait(lambda: bench.unfinished() == 0, PATIENCE, pause=0.05):
            return {"unfinished": float(bench.unfinished())}
        cpu, server = family_cpu(supervisor) - before, cpu_seconds(bench.server) - server
    seconds = bench.database.number(TOOK) / 1e6
    return {"jobs": count / seconds, "cpu": cpu / count * 1e6, "server": server / count * 1e6}


def family_cpu(supervisor: Agent) -> float:
    """Of a supervisor and its children, in seconds."""
    leader = supervisor.process.pid
    children = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
    ticks = 0
    for pid in [str(leader), *children]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICK


def run_down(bench: Bench, count: int, processes: int = 1, **options: object) -> Figures:
    """Work off what is there."""
    agents = [bench.start("work", slot=slot, executor=slot, **options) for slot in range(processes)]

    def go() -> None:
        for agent in agents:
            agent.go()

    return _drained(bench, agents, count, go)


def _drained(bench: Bench, agents: Sequence[Agent], count: int, go: Callable[[], object]) -> Figures:
    server = cpu_seconds(bench.server)
    before, cpu = bench.database.reading(), sum(agent.cpu_seconds for agent in agents)
    go()
    bench.wait(lambda: bench.marks.total >= count, PATIENCE)
    if not bench.wait(lambda: bench.unfinished() == 0, PATIENCE, pause=0.01):
        return {"unfinished": float(bench.unfinished())}
    seconds = time.monotonic() - bench.marks.first
    cpu = sum(agent.cpu_seconds for agent in agents) - cpu
    wal = bench.database.reading().wal - before.wal
    return {
        "jobs": count / seconds,
        "cpu": cpu / count * 1e6,
        "server": (cpu_seconds(bench.server) - server) / count * 1e6,
        "wal": wal / count,
        "repeated": float(bench.marks.total - count),
    }


def count_statements(bench: Bench) -> Figures:
    """The same once more, through a relay that counts; nothing is timed."""
    count = bench.size(JOBS // 2)
    bench.do("fill", count=count)
    with relay(bench.server.port) as counter:
        bench.port = counter.port
        agent = bench.start("work")
        time.sleep(1.2)
        before, commits = counter.statements, bench.database.reading().commits
        agent.go()
        bench.wait(lambda: bench.marks.total >= count, PATIENCE)
        bench.wait(lambda: bench.unfinished() == 0, PATIENCE, pause=0.2)
        statements = counter.statements - before
        time.sleep(1.5)
        return {
            "statements": statements / count,
            "commits": (bench.database.reading().commits - commits) / count,
        }


UNITS = {"jobs": "jobs/s", "cpu": "worker CPU µs/job", "server": "server CPU µs/job"}
SCALED = {f"{name} {number}": f"{unit}, {number}" for name, unit in UNITS.items() for number in SCALE}
WORKLOADS = (
    Workload("drain-1", "drain 20,000 no-op jobs, 1 process", drain, UNITS | {"wal": "WAL bytes/job"}),
    Workload("drain-2", "the same, 2 processes", partial(drain, processes=2), {"jobs": "jobs/s"}),
    Workload(
        "drain-scale",
        "the same, 1 to 16 processes",
        scale,
        {f"jobs {number}": f"jobs/s, {number}" for number in SCALE},
        ("penstock",),
    ),
    Workload(
        "drain-scale-started",
        "100,000 by workers that have started before, 1 to 16 processes",
        partial(scale, measure=drain_started),
        SCALED,
        ("penstock",),
    ),
    Workload(
        "drain-scale-supervised",
        "the same, by the children of one supervisor",
        partial(scale, measure=drain_supervised),
        SCALED,
        ("penstock",),
    ),
    Workload(
        "statements",
        "statements of a drain",
        count_statements,
        {"statements": "per job", "commits": "commits/job"},
        most_rounds=1,
    ),
)
