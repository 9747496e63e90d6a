"""What was done, to whom, and what they held at that moment."""

from dataclasses import dataclass, field

DATABASE = "the database"


@dataclass(frozen=True, slots=True)
class Held:
    """A job that was being run when something struck, under its n-th claim, on this host."""

    job: str
    generation: int
    host: str
    pid: int = 0


@dataclass(slots=True)
class Strike:
    """One fault. Times are the machine's monotonic clock; `at` is the database's, or None if it was away already."""

    kind: str
    victim: str
    began: float
    at: int | None = None
    held: list[Held] = field(default_factory=list)
    ended: float = 0.0
    alone: bool = False
    """Nothing else was going on when it struck, or until some time after it was over."""

    @property
    def hits_all(self) -> bool:
        return self.victim == DATABASE
