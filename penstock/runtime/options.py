"""What one worker is told by whoever starts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.values.units import QueueLimit


def details(queues: Sequence[QueueLimit] | None, concurrency: int) -> dict[str, object]:
    """What a process row says of its worker."""
    return {"queues": "all" if queues is None else ",".join(map(str, queues)), "concurrency": concurrency}


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a worker may be told beside the app's settings."""

    queues: Sequence[QueueLimit] | None = None
    concurrency: int | None = None
    role: str | None = None
    supervisor_id: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    """More for the process row, for those who look at it."""
    reconcilers: Sequence[str] | None = None
    """The reconcilers to run, by name; None: all that the app has."""
