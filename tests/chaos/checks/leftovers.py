"""In the end all processes have left in order, and no row of theirs is left."""

from collections.abc import Iterator

from tests.chaos.facts import Facts


def leftovers(facts: Facts) -> Iterator[str]:
    for table, count in facts.left.items():
        if count:
            yield f"{count} rows are left in {table}"
    for row in facts.locked:
        yield f"the lock of {row} is left"
    for process in facts.strays:
        yield f"a process is left: {process}"
    for host, code in facts.codes.items():
        if code:
            yield f"{host} was stopped at the end, and ended with code {code}"
    yield from facts.oddities
