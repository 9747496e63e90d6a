"""Events about rows of reconcilers, with their log messages."""

from __future__ import annotations

from dataclasses import dataclass
from logging import DEBUG, INFO, WARNING

from penstock.telemetry.events import Event
from penstock.telemetry.messages import word
from penstock.values.plain import counted


@dataclass(frozen=True, slots=True)
class RowsClaimed(Event):
    reconciler: str
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RowSettled(Event):
    """A handler ended and the row is free again. `outcome` is one of `penstock.reconcile.outcome.VisitKind`."""

    reconciler: str
    table: str
    row: str
    outcome: str
    seconds: float
    error: str | None = None
    error_type: str | None = None
    """The name of the exception's class, with its module."""
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    """Another worker took over a row; the outcome of our attempt was dropped."""

    reconciler: str
    table: str
    row: str
    token: int


@dataclass(frozen=True, slots=True)
class ColumnsKept(Event):
    """Other code wrote these columns while the row was being worked on; its values were kept."""

    reconciler: str
    table: str
    row: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RelatedBusy(Event):
    """A row could not be worked on, because another claim holds rows that it needs; it has announced itself."""

    reconciler: str
    table: str
    row: str


@dataclass(frozen=True, slots=True)
class LocksSwept(Event):
    """Locks of holders that will never come back were removed."""

    table: str
    count: int


def _settled(event: RowSettled) -> str:
    error = f": {event.error}" if event.error else ""
    return (
        f"{event.table} {event.row} {event.outcome} by {event.reconciler} after {event.seconds:.3f} s{error}"
    )


word(
    RowsClaimed,
    DEBUG,
    lambda e: f"{e.reconciler} claimed {counted(e.count, 'row')} in {e.seconds * 1000:.1f} ms",
)
word(RowSettled, lambda e: WARNING if e.error else DEBUG, _settled)
word(
    LeaseLost,
    WARNING,
    lambda e: f"LeaseLost: {e.reconciler} lost {e.table} {e.row}; whatever came of it is dropped",
)
word(
    ColumnsKept,
    INFO,
    lambda e: (
        f"{e.table} {e.row}: {', '.join(e.columns)} kept as other code wrote them while {e.reconciler} worked"
    ),
)
word(RelatedBusy, DEBUG, lambda e: f"{e.reconciler} waits for rows that belong to {e.table} {e.row}")
word(LocksSwept, INFO, lambda e: f"removed {counted(e.count, 'orphaned lock')} from {e.table}")
