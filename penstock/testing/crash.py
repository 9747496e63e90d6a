"""Crashes a worker at a named point, for tests that nothing is lost and nothing is done twice."""

from __future__ import annotations

from penstock.errors import ConfigurationError
from penstock.telemetry import fault_points
from penstock.telemetry.fault_points import SimulatedCrash


class Crash:
    """A crash at a point. It ends with its `with` block, whether the point was reached or not."""

    def __init__(self, point: str, visit: int) -> None:
        self.point = point
        self.crashed = False
        """Whether the point was reached."""
        self._strike = fault_points.crasher(f"{point}:{visit}:raise")
        self._watching = fault_points.watching(self._reached)

    def _reached(self, point: str) -> None:
        try:
            self._strike(point)
        except SimulatedCrash:
            self.crashed = True
            raise

    def __enter__(self) -> Crash:
        self._watching.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._watching.__exit__(None, None, None)
        return self.crashed and isinstance(error, SimulatedCrash)


def crash_at(point: str, visit: int = 1) -> Crash:
    """Let whatever reaches this point for the `visit`-th time in the `with` block be dead from there on.

    Points lie before each statement of a transaction (`settle.1`, `settle.2`, …), before its commit
    (`settle.commit`), after it (`settle.committed`), and around a handler (`execute.before`,
    `execute.after`). In `drain` the worker dies: its claims stay as a killed process leaves them, and the next
    `drain` takes them back. Elsewhere, as in an enqueue, the call itself breaks off. The end of the block
    swallows the crash.
    """
    fault_points.check(point)
    if visit < 1:
        raise ConfigurationError(
            f"visit={visit!r}: give 1 for the first time the point is reached, 2 for the second, ..."
        )
    return Crash(point, visit)
