"""Runs that cannot be planned: tried a few times, then halted with the error, so that nothing waits for them for ever.

Planning is pure and should never raise. This is for what nobody has thought of: a bug, a definition from a newer
version, rows that were changed by hand. A plan that raises names its run and rolls the transaction back. Whoever has
made sure that it is this one alone spends a try, and comes back. When the tries are spent, the run is halted without
any planning (see `closing.follow`): what has not started is swept, what runs may finish, and the last of its steps
ends the run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import ParamSpec, TypeVar

from penstock.errors import AdvancementFailed

P = ParamSpec("P")
R = TypeVar("R")

MOST_TRIES = 6
"""Half of them for what came of the step, the rest for the step as a failed one."""
MOST_RUNS = 1000


class Troubles:
    """The runs that this process could not plan: how often it has tried."""

    def __init__(self) -> None:
        self._tries: OrderedDict[str, int] = OrderedDict()

    def planned(self, run: str, plan: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What planning returns; what it raises becomes an error that names the run."""
        try:
            return plan(*args, **kwargs)
        except Exception as error:
            raise self.of(run, error) from error

    def of(self, run: str, error: Exception) -> AdvancementFailed:
        return AdvancementFailed(run, f"{type(error).__name__}: {error}", partial(self._spend, run))

    def _spend(self, run: str) -> bool:
        """One more try was in vain; whether half of them are left."""
        self._tries[run] = self._tries.pop(run, 0) + 1
        while len(self._tries) > MOST_RUNS:
            self._tries.popitem(last=False)
        return self._tries[run] < MOST_TRIES // 2

    def given_up(self, runs: Iterable[str]) -> list[str]:
        """Those of these runs that are not tried any more."""
        if not self._tries:
            return []
        return [run for run in dict.fromkeys(runs) if self._tries.get(run, 0) >= MOST_TRIES]
