"""What the history is told of every table: triggers, one fact per row written.

A fact begins with its kind. `state` facts carry the row before and after; a missing one is None.
"""

from __future__ import annotations

import sqlite3

STATE = (
    "status",
    "token",
    "process_id",
    "generation",
    "retry_count",
    "crash_count",
    "cancel_requested",
    "reason",
)
TOLD = {
    "jobs": ("id", "task", "queue", "priority", "payload", "max_crashes", "job_key", "run_id"),
    "executions": ("job_id", "generation", "process_id", "outcome", "output", "error_type"),
    "availabilities": ("job_id", "seq"),
    "scheduled": ("job_id", "due_at"),
    "parked": ("job_id", "limit_key"),
    "slots": ("job_id", "limit_key", "token", "until"),
    "limits": ("limit_key", "most"),
    "claims": ("token", "process_id", "job_ids"),
    "processes": ("id", "heartbeat_at"),
    "dead_letters": ("job_id",),
    "advancements": ("id", "run_id"),
    "runs": ("id", "status", "parent_run_id", "revived_from", "forked_from"),
    "chains": ("downstream_id", "upstream_id"),
}
CHANGES = {
    "processes": ("beat", ("NEW.id", "NEW.heartbeat_at")),
    "runs": ("run", ("NEW.id", "OLD.status", "NEW.status", "NEW.mode", "NEW.paused_at", "NEW.failed")),
    "joins": ("join", ("NEW.run_id", "NEW.node", "NEW.path", "OLD.fired", "NEW.fired", "NEW.still_open")),
}
"""Updates that are told, with what."""


def watch(connection: sqlite3.Connection, prefix: str) -> None:
    """Have everything that matters told to `sim_log`."""
    _watch_states(connection, f"{prefix}job_states")
    for table, columns in TOLD.items():
        for verb, row in (("INSERT", "NEW"), ("DELETE", "OLD")):
            facts = ", ".join(f"{row}.{column}" for column in columns)
            kind = f"{table}+" if verb == "INSERT" else f"{table}-"
            _trigger(connection, f"{prefix}{table}", verb, f"'{kind}', {facts}")
    for table, (kind, told) in CHANGES.items():
        _trigger(connection, f"{prefix}{table}", "UPDATE", ", ".join([f"'{kind}'", *told]))


def _watch_states(connection: sqlite3.Connection, table: str) -> None:
    old, new = (", ".join(f"{row}.{column}" for column in STATE) for row in ("OLD", "NEW"))
    nothing = ", ".join(["NULL"] * len(STATE))
    _trigger(connection, table, "INSERT", f"'state', NEW.job_id, {nothing}, {new}")
    _trigger(connection, table, "UPDATE", f"'state', NEW.job_id, {old}, {new}")
    _trigger(connection, table, "DELETE", f"'state', OLD.job_id, {old}, {nothing}")


def _trigger(connection: sqlite3.Connection, table: str, verb: str, facts: str) -> None:
    name = f"sim_{table}_{verb.lower()}"
    connection.execute(f"CREATE TRIGGER {name} AFTER {verb} ON {table} BEGIN SELECT sim_log({facts}); END")


class Broom:
    """Empties every table for the next schedule. Most have nothing in them: that is asked of all at once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = [name for name in names if "schema_versions" not in name]
        self.look = f"SELECT {', '.join(f'EXISTS (SELECT 1 FROM {name})' for name in tables)}"
        self.deletes = [f"DELETE FROM {name}" for name in tables]

    def sweep(self) -> None:
        execute = self.connection.execute
        execute("BEGIN")
        for filled, delete in zip(execute(self.look).fetchone(), self.deletes, strict=True):
            if filled:
                execute(delete)
        execute("COMMIT")
