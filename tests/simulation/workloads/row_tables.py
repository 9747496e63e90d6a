"""The user's own tables: fleets of instances, and orders that share them. Every change of a row is told."""

from __future__ import annotations

import random
import sqlite3
from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.schema import CreateTable

from penstock import Reconcilable


class Base(DeclarativeBase):
    pass


class Visited(Reconcilable):
    """What every row counts."""

    visits: Mapped[int] = mapped_column(default=0)
    """How many handlers have written to it: each adds one to what it read, so a lost or a stale write shows."""
    requests: Mapped[int] = mapped_column(default=0)
    """What API code has asked for."""
    seen: Mapped[int] = mapped_column(default=0)
    """How many requests the last handler knew of: all of them in the end."""


class Fleet(Base, Visited):
    __tablename__ = "sim_fleets"
    id: Mapped[int] = mapped_column(primary_key=True)


class Instance(Base, Visited):
    __tablename__ = "sim_instances"
    id: Mapped[int] = mapped_column(primary_key=True)
    fleet_id: Mapped[int] = mapped_column(ForeignKey("sim_fleets.id"))


class Order(Base, Visited):
    __tablename__ = "sim_tickets"
    id: Mapped[int] = mapped_column(primary_key=True)
    instance_id: Mapped[int] = mapped_column(ForeignKey("sim_instances.id"))
    state: Mapped[str] = mapped_column(String(10), default="new")


MODELS: dict[str, Any] = {"sim_fleets": Fleet, "sim_instances": Instance, "sim_tickets": Order}
TOLD = (
    *("lock_token", "lock_expires_at", "lock_owner", "next_process_at", "process_attempts"),
    *("process_crashes", "visits", "requests", "seen"),
)
PARENT = {"sim_fleets": "NULL", "sim_instances": "fleet_id", "sim_tickets": "instance_id"}


def create(connection: sqlite3.Connection) -> None:
    """The tables, and triggers that tell a row before and after every change."""
    for name, model in MODELS.items():
        connection.execute(str(CreateTable(model.__table__).compile(dialect=sqlite.dialect())))
        for verb, before, after in (
            ("INSERT", None, "NEW"),
            ("UPDATE", "OLD", "NEW"),
            ("DELETE", "OLD", None),
        ):
            facts = ", ".join([f"{after or before}.id", _row(name, before), _row(name, after)])
            connection.execute(
                f"CREATE TRIGGER {name}_{verb.lower()} AFTER {verb} ON {name} "
                f"BEGIN SELECT sim_log('row', '{name}', {facts}); END"
            )


def _row(table: str, row: str | None) -> str:
    if row is None:
        return ", ".join(["NULL"] * (len(TOLD) + 1))
    parent = PARENT[table] if PARENT[table] == "NULL" else f"{row}.{PARENT[table]}"
    return ", ".join([*(f"{row}.{column}" for column in TOLD), parent])


def fill(connection: sqlite3.Connection, rng: random.Random) -> None:
    """A few rows of each, every one worth a visit."""
    fleets, instances = rng.choice([1, 1, 2]), rng.randint(1, 3)
    rows: dict[str, list[tuple[Any, ...]]] = {
        "sim_fleets (id": [(id,) for id in range(1, fleets + 1)],
        "sim_instances (id, fleet_id": [(id, 1 + id % fleets) for id in range(1, instances + 1)],
        "sim_tickets (id, instance_id, state": [
            (id, 1 + id % instances, "new") for id in range(1, rng.randint(2, 3))
        ],
    }
    for into, values in rows.items():
        marks = ", ".join("?" * len(values[0]))
        connection.executemany(
            f"INSERT INTO {into}, visits, requests, seen) VALUES ({marks}, 0, 0, 0)", values
        )


def hold(connection: sqlite3.Connection, until: str) -> None:
    """By a process that is not there."""
    for number, table in enumerate(MODELS):
        connection.execute(
            f"UPDATE {table} SET lock_token = id + {1000 * number}, lock_expires_at = '{until}'"
        )


def all_rows(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """Every row as the triggers tell it."""
    return [
        (table, *row)
        for table in MODELS
        for row in connection.execute(f"SELECT id, {', '.join(TOLD)}, {PARENT[table]} FROM {table}")
    ]
