"""The subjects of wake-ups about rows. Hints only: a worker that misses one finds the rows by polling."""

from __future__ import annotations

ROWS = "rows"


def table_changed(table: str) -> str:
    """The subject for a table with rows to visit."""
    return f"{ROWS}\ttable\t{table}"


def awaited(who: str) -> str:
    """The subject for a reconciler that waits for rows which are free now."""
    return f"{ROWS}\treconciler\t{who}"


def concerns(subject: str, table: str, reconciler: str) -> bool:
    """True if this reconciler should look. A subject that is not about rows may mean anything."""
    kind, _, rest = subject.partition("\t")
    if kind != ROWS:
        return False
    return not rest or rest in (f"table\t{table}", f"reconciler\t{reconciler}")
