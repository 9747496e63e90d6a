"""Apps with something to look at."""

from typing import Any

from penstock import Penstock
from penstock.database.dialect import Lane
from penstock.database.transaction import Transaction
from penstock.job import Job
from penstock.operate.overview import Overview, overview
from penstock.queue import claim, processes
from penstock.queue.jobs import Claim
from penstock.values.ids import new_id, new_token


def declare_tasks(app: Penstock) -> None:
    @app.task(name="fail", retries=0)
    def fail(number: int) -> None:
        raise ValueError(f"number {number}")

    @app.task(name="quick")
    def quick(number: int) -> int:
        return number


def enqueue(app: Penstock, task: str, *arguments: object, **options: Any) -> Job:
    return app.tasks[task].options(**options).enqueue(*arguments)


def look(app: Penstock) -> Overview:
    return app.database.read(overview, app.settings.reap_after)


def register(
    app: Penstock,
    role: str = "all",
    supervisor: str | None = None,
    details: str = "{}",
    reap_after: float | None = None,
) -> str:
    """A process row, without a process."""
    id = new_id()
    app.database.in_transaction(processes.register, id, "host", 1, role, supervisor, details, reap_after)
    return id


def take(app: Penstock, process: str, limit: int = 100, only: str | None = None) -> list[Claim]:
    """Claim as that process would; `only`: from this queue."""

    def work(tx: Transaction) -> list[Claim]:
        found = [(queue, tier) for queue, tier in claim.discover(tx, None) if only in (None, queue)]
        lanes = [Lane(queue, tier, 0, limit) for queue, tier in found]
        claims, _ = claim.claim(tx, lanes, list(app.tasks), limit, new_token(), process)
        return claims

    return app.database.in_transaction(work)
