"""Whether the promises were kept: each check is a function of the facts that yields what is wrong."""

from collections.abc import Callable, Iterator

from tests.chaos.checks.accepted import accepted
from tests.chaos.checks.budgets import budgets
from tests.chaos.checks.effects import effects
from tests.chaos.checks.jobs import jobs
from tests.chaos.checks.leftovers import leftovers
from tests.chaos.checks.rows import rows
from tests.chaos.checks.runs import runs
from tests.chaos.checks.ticks import ticks
from tests.chaos.facts import Facts

CHECKS: tuple[Callable[[Facts], Iterator[str]], ...] = (
    accepted,
    jobs,
    effects,
    runs,
    rows,
    ticks,
    budgets,
    leftovers,
)


def check(facts: Facts) -> list[str]:
    """Everything that is wrong; nothing if all promises were kept."""
    return [wrong for look in CHECKS for wrong in look(facts)]
