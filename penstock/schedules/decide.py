"""Decides about ticks that are due: which fire, and which are skipped because too much time has passed.

Ticks that are a little late are fired, each of them. If the first of them is older than that, no worker ran for a
while, and the policy for missed ticks decides about all that have passed: none (`skip`), the last one (`latest`), or
all of them in their order (`all`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from penstock.schedules.times import SECOND, Spec, count, latest, next_tick, ticks

GRACE = 30 * SECOND
"""Microseconds: a tick that is not later than this has not been missed."""
BATCH = 100
"""The most ticks of one schedule that one transaction fires."""
ROWS = 100
"""The most skipped ticks that get a row each; those before them share one row, which counts them."""


class Missed(StrEnum):
    """The policy for ticks that passed while no worker ran."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class Overlap(StrEnum):
    """The policy for a tick whose predecessor still runs."""

    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"
    CANCEL = "cancel"


class TickOutcome(StrEnum):
    """The outcome of a tick."""

    FIRED = "fired"
    WAITING = "waiting"
    SKIPPED_OVERLAP = "skipped_overlap"
    SKIPPED_MISSED = "skipped_missed"
    SKIPPED_PAUSED = "skipped_paused"


class TickPolicy(NamedTuple):
    """The policy for missed ticks, and how late a tick may be."""

    missed: Missed = Missed.LATEST
    window: int | None = None
    """Microseconds: older ticks are not made up for. With `skip`: how late a tick may be."""
    limit: int = 10_000


class Skipped(NamedTuple):
    """Ticks that did not fire: one, or several that are counted together."""

    nominal: int
    """The last of them."""
    first: int
    number: int


class Decision(NamedTuple):
    """The decision about a schedule: ticks that fire, ticks that are skipped, and the next time."""

    fired: list[int]
    skipped: list[Skipped]
    next_at: int | None
    """The first tick that nothing is decided about."""


def decide(spec: Spec, policy: TickPolicy, next_at: int, now: int) -> Decision:
    """Decide about all due ticks from `next_at` on."""
    if next_at > now:
        return Decision([], [], next_at)
    grace = GRACE if policy.missed is not Missed.SKIP or policy.window is None else policy.window
    if now - next_at <= grace:
        return _fired(spec, next_at, now, [])
    match policy.missed:
        case Missed.SKIP:
            return Decision([], skipped(spec, next_at, now), next_tick(spec, now))
        case Missed.LATEST:
            return _fire_last(spec, policy, next_at, now)
        case Missed.ALL:
            return _fire_all(spec, policy, next_at, now)


def _fire_last(spec: Spec, policy: TickPolicy, next_at: int, now: int) -> Decision:
    (last,) = latest(spec, next_at - 1, now)
    after = next_tick(spec, now)
    if policy.window is not None and now - last > policy.window:
        return Decision([], skipped(spec, next_at, now), after)
    return Decision([last], skipped(spec, next_at, last - 1), after)


def _fire_all(spec: Spec, policy: TickPolicy, next_at: int, now: int) -> Decision:
    begin = next_at
    if policy.window is not None and now - next_at > policy.window:
        begin = next_tick(spec, now - policy.window - 1) or now + 1
    if begin <= now and count(spec, begin - 1, now) > policy.limit:
        begin = latest(spec, begin - 1, now, policy.limit)[0]
    too_old = skipped(spec, next_at, begin - 1)
    if begin > now:
        return Decision([], too_old, next_tick(spec, now))
    return _fired(spec, begin, now, too_old)


def _fired(spec: Spec, begin: int, now: int, too_old: list[Skipped]) -> Decision:
    fired: list[int] = []
    for tick in ticks(spec, begin - 1, now):
        if len(fired) == BATCH:
            return Decision(fired, too_old, tick)
        fired.append(tick)
    return Decision(fired, too_old, next_tick(spec, now))


def skipped(spec: Spec, first: int, until: int) -> list[Skipped]:
    """All ticks from the first to this instant, the last of them one by one and the others together."""
    if first > until:
        return []
    last = latest(spec, first - 1, until, ROWS)
    alone = [Skipped(tick, tick, 1) for tick in last]
    if last and last[0] > first:
        (before,) = latest(spec, first - 1, last[0] - 1)
        alone.insert(0, Skipped(before, first, count(spec, first - 1, before)))
    return alone
