"""The subjects of wake-ups about rows. Hints only: a worker that misses one finds the rows by polling."""

from __future__ import annotations

ROWS = "rows"


def table_changed(table: str) -> str:
    """Something in this table is worth a look."""
    return f"{ROWS}\ttable\t{table}"


def awaited(who: str) -> str:
    """Rows are free for which this reconciler has announced itself."""
    return f"{ROWS}\treconciler\t{who}"


def concerns(subject: str, table: str, reconciler: str) -> bool:
    """Whether this reconciler should look. What says nothing about rows may be about anything."""
    kind, _, rest = subject.partition("\t")
    if kind != ROWS:
        return False
    return not rest or rest in (f"table\t{table}", f"reconciler\t{reconciler}")
