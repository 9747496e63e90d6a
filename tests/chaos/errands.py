"""What the producer does for each kind of operation. Everything here may be repeated: the answer to it may get lost."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sqlalchemy import Connection, insert, select, update

from penstock.errors import ActionRefused
from tests.chaos import flows, plan, shop, yard
from tests.chaos.plan import Operation
from tests.chaos.shop import app, ledger

SIGNAL_AFTER = (0.0, 4.0)
TASKS = {"late": shop.plain, "ordered": shop.plain, "cancelled": shop.slow}


@dataclass(slots=True)
class Errands:
    """The producer's memory: what it has to come back to."""

    chance: Random
    counters: list[int] = field(default_factory=list)
    signals: list[tuple[float, int, str]] = field(default_factory=list)
    """When to give a signal, to which operation's run."""

    def run(self, operation: Operation) -> list[str]:
        """Do it; the ids of the jobs or runs that were accepted by it."""
        special: dict[str, Callable[[Operation], list[str]]] = {
            "many": self._many,
            "cancelled": self._cancelled,
            "ordered": self._ordered,
            "counter": self._counter,
            "fleet": self._fleet,
            "bump": self._bump,
        }
        if operation.kind in special:
            return special[operation.kind](operation)
        if operation.kind in plan.RUNS:
            return self._trigger(operation)
        return [_enqueue(operation)]

    def give_signals(self) -> None:
        """Those that are due. A run that ended meanwhile takes none."""
        now = time.monotonic()
        due = [signal for signal in self.signals if signal[0] <= now]
        for signal in due:
            _, number, run = signal
            try:
                given = app.run(run).signal("approve", f"approved {number}")
            except ActionRefused:
                given = False
            ledger.write("signalled", run=run, given=given)
            self.signals.remove(signal)

    def _trigger(self, operation: Operation) -> list[str]:
        number, kind = operation.number, operation.kind
        arguments: list[Any] = [number]
        if operation.pipeline == "enrich":
            arguments.append(plan.width_of(kind, number))
        run = app.pipelines[operation.pipeline].options(key=operation.key).trigger(*arguments)
        if kind == "approval":
            due = time.monotonic() + self.chance.uniform(*SIGNAL_AFTER)
            self.signals.append((due, number, run.id))
        if kind in ("chained", "broken_chain"):
            ledger.write("chaining", run=run.id)
            chained = run.then(flows.inner, number)
            ledger.write("chained", run=run.id, following=chained.id)
        return [run.id]

    def _many(self, operation: Operation) -> list[str]:
        return [job.id for job in shop.plain.enqueue_many([(operation.number,)] * plan.MANY)]

    def _cancelled(self, operation: Operation) -> list[str]:
        job = shop.slow.options(key=operation.key).enqueue(operation.number)
        if operation.number % 2:
            time.sleep(0.1)  # so that some of them run by now
        ledger.write("cancelled", job=job.id, done=job.cancel())
        return [job.id]

    def _ordered(self, operation: Operation) -> list[str]:
        """The order and its job, in one transaction of ours."""
        row = {"number": operation.number}
        with app.database.engine.begin() as connection:
            _add(connection, shop.orders, [row])
            task = shop.plain.options(connection=connection, key=operation.key)
            return [task.enqueue(operation.number).id]

    def _counter(self, operation: Operation) -> list[str]:
        with app.database.engine.begin() as connection:
            _add(connection, yard.Counter.__table__, [{"number": operation.number}], "id")
        app.hint(yard.Counter)
        self.counters.append(operation.number)
        return []

    def _fleet(self, operation: Operation) -> list[str]:
        number = operation.number
        with app.database.engine.begin() as connection:
            _add(connection, yard.Fleet.__table__, [{"number": number}], "id")
            ships = [{"number": number * 10 + index, "fleet_id": number} for index in range(plan.SHIPS)]
            _add(connection, yard.Ship.__table__, ships, "id")
        app.hint(yard.Fleet)
        return []

    def _bump(self, operation: Operation) -> list[str]:
        """Under the row's lock: read the target, write the next."""
        if not self.counters:
            return []
        counter = Random(operation.number).choice(self.counters[-20:])
        table = yard.Counter.__table__.c
        with app.lock(yard.Counter, counter, timeout=5) as connection:
            done = select(shop.bumps.c.number).where(shop.bumps.c.number == operation.number)
            if connection.execute(done).first() is None:
                target = connection.execute(select(table.target).where(table.id == counter)).scalar_one()
                connection.execute(insert(shop.bumps).values(number=operation.number, counter=counter))
                connection.execute(update(yard.Counter).where(table.id == counter).values(target=target + 1))
        ledger.write("bumped", number=operation.number, counter=counter)
        return []


def _enqueue(operation: Operation) -> str:
    task = TASKS.get(operation.kind) or app.tasks[operation.kind]
    options: dict[str, Any] = {"key": operation.key}
    if operation.kind == "late":
        options["delay"] = plan.delay_of(operation.number)
    return task.options(**options).enqueue(operation.number).id


def _add(connection: Connection, table: Any, rows: list[dict[str, int]], key: str = "number") -> None:
    """Unless they are there already, from a try whose answer was lost."""
    there = select(table.c[key]).where(table.c[key] == rows[0]["number"])
    if connection.execute(there).first() is None:
        connection.execute(insert(table), [{key: row["number"], **_others(row)} for row in rows])


def _others(row: dict[str, int]) -> dict[str, int]:
    return {name: value for name, value in row.items() if name != "number"}
