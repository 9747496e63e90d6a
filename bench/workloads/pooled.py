"""Many workers on few connections of the server: PgBouncer in transaction mode, and one direct connection for each
supervisor to listen on."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.driver import Agent, Bench
from bench.workloads.base import Figures, Workload
from penstock import Penstock
from tests.servers.pgbouncer import PgBouncer

WORKERS, SUPERVISORS, CONNECTIONS, JOBS = 500, 10, 100, 20_000
CLIENTS = 4
"""Connections to the pooler for each worker, at most."""
PATIENCE = 300
REGISTERED = "SELECT count(*) FROM penstock_processes WHERE role <> 'supervisor'"
USED = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name {} 'penstock-listen' AND pid <> pg_backend_pid()
AND backend_type = 'client backend'
"""
ENDED = "SELECT count(*) FROM penstock_job_states WHERE status = 'succeeded'"
BODIES = "SELECT count(*) FROM penstock_executions"
BY = "SELECT count(DISTINCT process_id) FROM penstock_executions"


def pooled(bench: Bench) -> Figures:
    workers = max(SUPERVISORS, int(WORKERS * bench.scale))
    connections, jobs = max(5, int(CONNECTIONS * bench.scale)), bench.size(JOBS)
    with ExitStack() as stack:
        pooler = stack.enter_context(_pooler(bench, workers, connections))
        stack.enter_context(_environment(PENSTOCK_POOLER="transaction", PENSTOCK_LISTEN_URL=bench.url))
        url = pooler.through(bench.url)
        with Penstock(bench.url) as app:
            app.pause_queue("default")
        bench.do("fill", count=jobs)
        supervisors = _start(bench, url, workers)
        with Penstock(bench.url) as app:
            app.resume_queue("default")
        return _drained(bench, supervisors, jobs) | {"workers": float(workers)}


def _start(bench: Bench, url: str, workers: int) -> list[Agent]:
    share, more = divmod(workers, SUPERVISORS)
    found = [
        bench.start("supervise", at=url, processes=share + (number < more), tasks_only=True)
        for number in range(SUPERVISORS)
    ]
    for supervisor in found:
        supervisor.go()
    bench.wait(lambda: bench.database.number(REGISTERED) >= workers, PATIENCE, pause=0.5)
    return found


def _drained(bench: Bench, supervisors: list[Agent], jobs: int) -> Figures:
    began, used = time.monotonic(), 0
    registered = bench.database.number(REGISTERED)

    def done() -> bool:
        nonlocal used
        used = max(used, bench.database.number(USED.format("<>")))
        return bench.database.number(ENDED) >= jobs

    bench.wait(done, PATIENCE, pause=0.02)
    seconds = time.monotonic() - began
    return {
        "registered": float(registered),
        "jobs": jobs / seconds,
        "lost": float(jobs - bench.database.number(ENDED)),
        "repeated": float(bench.database.number(BODIES) - jobs),
        "by": float(bench.database.number(BY)),
        "connections": float(used),
        "listening": float(bench.database.number(USED.format("="))),
        "memory": sum(supervisor.megabytes for supervisor in supervisors),
    }


@contextmanager
def _pooler(bench: Bench, workers: int, connections: int) -> Iterator[PgBouncer]:
    folder = Path(bench.folder) / "pgbouncer"
    few = {"default_pool_size": connections, "max_db_connections": connections}
    clients = {"max_client_conn": CLIENTS * (workers + SUPERVISORS)}
    with PgBouncer(folder, bench.url, "transaction", **few, **clients) as pooler:
        yield pooler


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """For the agents that are started within."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


WORKLOADS = (
    Workload(
        "pooled",
        "500 workers on 100 connections, 20,000 no-op jobs",
        pooled,
        {
            "jobs": "jobs/s",
            "lost": "lost",
            "connections": "connections used, pooled",
            "listening": "connections used, listening",
            "by": "workers that ran some",
            "memory": "MB in all",
        },
        ("penstock",),
        most_rounds=1,
    ),
)
