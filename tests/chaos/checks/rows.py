"""Reconciled rows: no stale apply, no apply of two holders at a time, everything visited until there is nothing to do.

Every visit reads a value and writes the next, and a mark in the same transaction. Two applies from overlapping claims
would have read the same value.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos import plan
from tests.chaos.facts import Facts


def rows(facts: Facts) -> Iterator[str]:
    values: dict[tuple[str, int], list[int]] = defaultdict(list)
    for kind, row, value, _ in facts.marks:
        values[kind, row].append(value)
    for (kind, row, token), times in Counter(
        (kind, row, token) for kind, row, _, token in facts.marks
    ).items():
        if times > 1:
            yield f"{kind} {row} was applied {times} times under one claim ({token})"
    yield from _counts("counter", {id: done for id, (_, done) in facts.counters.items()}, values)
    yield from _counts("fleet", facts.fleets, values)
    yield from _counts("ship", {id: done for id, (_, _, done) in facts.ships.items()}, values)
    yield from _ends(facts)
    yield from _accepted(facts)


def _counts(kind: str, done: dict[int, int], values: dict[tuple[str, int], list[int]]) -> Iterator[str]:
    for id, count in done.items():
        if values[kind, id] != list(range(1, count + 1)):
            yield f"{kind} {id} stands at {count}, and its applies wrote {values[kind, id]}"


def _ends(facts: Facts) -> Iterator[str]:
    raised = Counter(facts.bumps.values())
    for id, (target, done) in facts.counters.items():
        if target != plan.ROUNDS + raised[id]:
            yield f"counter {id} was raised {raised[id]} times under its lock, and its target is {target}"
        if done != target:
            yield f"counter {id} stands at {done} of {target} when all is over"
    for id, done in facts.fleets.items():
        if done != plan.ROUNDS:
            yield f"fleet {id} stands at {done} of {plan.ROUNDS} when all is over"
    for id, (fleet, sailed, done) in facts.ships.items():
        if sailed != facts.fleets[fleet]:
            yield f"ship {id} sailed {sailed} times with fleet {fleet}, which sailed {facts.fleets[fleet]} times"
        if done != plan.ROUNDS:
            yield f"ship {id} stands at {done} of {plan.ROUNDS} when all is over"


def _accepted(facts: Facts) -> Iterator[str]:
    there = {"counter": set(facts.counters), "fleet": set(facts.fleets)}
    for entry in facts.told("accepted"):
        if entry["kind"] in there and entry["number"] not in there[entry["kind"]]:
            yield f"lost: {entry['kind']} {entry['number']} was committed and is not there"
    for entry in facts.told("bumped"):
        if entry["number"] not in facts.bumps:
            yield f"lost: operation {entry['number']} raised counter {entry['counter']} under its lock"
