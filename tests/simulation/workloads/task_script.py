"""What clients do with tasks: enqueue in every way, repeat themselves, cancel and retry."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import text

from penstock.errors import PenstockError
from tests.simulation.hosts import ClientHost
from tests.simulation.workloads import Act

ON_THE_LOOP = ("on_the_loop", "on_time", "stubborn", "writing_async")
KINDS = (
    *("plain", "flaky", "slow", "snoozing", "giving_up", "writing", "charging", "poison", "patient"),
    *ON_THE_LOOP,
)
OFTEN = (4, 4, 3, 2, 1, 5, 8, 1, 3, 4, 3, 2, 3)
ORDER = text("INSERT INTO sim_orders (number) VALUES (:number)")

Ids = dict[int, str]
"""The jobs that were accepted, by their number."""


class Regret(Exception):
    """The caller rolls back."""


def script(rng: random.Random, steers: float) -> Sequence[Act]:
    """A few jobs, and as many other calls. `steers`: how often a job is cancelled and retried."""
    ids: Ids = {}
    acts: list[Act] = []
    for number in range(rng.randint(2, 8)):
        acts += _enqueues(rng, number, ids)
        if rng.random() < steers:
            acts += [steer("cancel", number, ids), steer("retry", number, ids)]
        if rng.random() < 0.3:
            acts.append(steer(rng.choice(["cancel", "cancel", "retry"]), rng.randint(0, number), ids))
    acts += [
        steer(rng.choice(["cancel", "retry"]), rng.randint(0, 10), ids) for _ in range(rng.randint(0, 3))
    ]
    gaps = [rng.choice([0.0, 0.0, 0.1, 0.5, 2.0]) for _ in acts]
    return [after(gap, act) for gap, act in zip(gaps, acts, strict=True)]


def _enqueues(rng: random.Random, number: int, ids: Ids) -> list[Act]:
    kind = rng.choices(KINDS, OFTEN)[0]
    args = (number, rng.choice([0, 0, 1, 1, 2, 3]), rng.choice([0.0, 0.0, 0.01, 0.2, 1.0, 4.0, 12.0]))
    options: dict[str, Any] = {
        "queue": rng.choice(["default", "default", "mail"]),
        "priority": rng.choice([0, 0, 5]),
    }
    if rng.random() < 0.25:
        options["delay"] = rng.choice([0.5, 2.0, 5.0])
    way = rng.random()
    if way < 0.3:
        options["key"] = f"key-{rng.randint(0, 3)}"
        act = enqueue(kind, args, options, ids)
        return [act] * rng.choice([1, 1, 2])
    if way < 0.45:
        return [_enqueue_within(kind, args, options, ids, regret=rng.random() < 0.3)]
    if way < 0.55:
        return [_enqueue_many(kind, args, options, ids)]
    return [enqueue(kind, args, options, ids)]


def after(gap: float, act: Act) -> Act:
    def later(client: ClientHost) -> None:
        if gap:
            client.world.sleep(gap)
        try:
            act(client)
        except PenstockError as error:
            client.world.note(client.name, f"gave up: {error}")

    return later


def enqueue(kind: str, args: tuple[int, int, float], options: dict[str, Any], ids: Ids) -> Act:
    def act(client: ClientHost) -> None:
        task = client.app.tasks[kind].options(**options)
        client.world.record("asks", kind, args[0], options.get("key"))
        job = task.enqueue(*args)
        ids.setdefault(args[0], job.id)
        client.world.record("accepted", job.id, kind, options.get("key"))

    return act


def _enqueue_many(kind: str, args: tuple[int, int, float], options: dict[str, Any], ids: Ids) -> Act:
    def act(client: ClientHost) -> None:
        task = client.app.tasks[kind].options(**options)
        jobs = task.enqueue_many([args, (args[0] + 100, *args[1:])])
        ids[args[0]] = jobs[0].id
        for job in jobs:
            client.world.record("accepted", job.id, kind, None)

    return act


def _enqueue_within(
    kind: str, args: tuple[int, int, float], options: dict[str, Any], ids: Ids, regret: bool
) -> Act:
    """In the caller's own transaction: if and only if that commits."""

    def act(client: ClientHost) -> None:
        client.world.record("asks within", args[0])
        try:
            with client.app.database.engine.begin() as connection:
                connection.execute(ORDER, {"number": args[0]})
                job = client.app.tasks[kind].options(connection=connection, **options).enqueue(*args)
                if regret:
                    raise Regret
        except Regret:
            return
        except Exception as error:
            client.world.note(client.name, f"transaction failed: {type(error).__name__}")
            return
        ids[args[0]] = job.id
        client.world.record("accepted", job.id, kind, None)

    return act


def steer(verb: str, number: int, ids: Ids) -> Act:
    def act(client: ClientHost) -> None:
        if number not in ids:
            return
        handle = client.app.job(ids[number])
        client.world.record(f"asks {verb}", handle.id)
        call: Callable[[], bool] = handle.cancel if verb == "cancel" else handle.retry
        client.world.record(f"{verb} answered", handle.id, call())

    return act
