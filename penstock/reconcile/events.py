"""What happens to rows, as events."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.telemetry.events import Event


@dataclass(frozen=True, slots=True)
class RowsClaimed(Event):
    reconciler: str
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RowSettled(Event):
    """A handler ended and the row is free again. `outcome` is one of `penstock.reconcile.ending.Kind`."""

    reconciler: str
    table: str
    row: str
    outcome: str
    seconds: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    """A row was taken over by somebody else; whatever came of our attempt was dropped."""

    reconciler: str
    table: str
    row: str
    token: int


@dataclass(frozen=True, slots=True)
class ColumnsKept(Event):
    """Somebody wrote these columns while the row was being worked on; what they wrote was kept."""

    reconciler: str
    table: str
    row: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RelatedBusy(Event):
    """A row could not be worked on, because somebody holds rows that it needs; it has announced itself."""

    reconciler: str
    table: str
    row: str


@dataclass(frozen=True, slots=True)
class LocksSwept(Event):
    """Locks that nobody would ever have come back for were removed."""

    table: str
    count: int
