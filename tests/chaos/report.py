"""The report: what was done, what it cost, and what is wrong."""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.chaos import terms
from tests.chaos.checks.accepted import lost
from tests.chaos.checks.jobs import settled_twice
from tests.chaos.facts import Facts
from tests.chaos.recovery import Recovery, recoveries, repeated
from tests.chaos.terms import Terms

SHOWN = 40
NOT_ON_SQLITE = (
    "not on SQLite, which has no server and no network: connections killed, server restarted, network"
)


def report(asked: Terms, facts: Facts, wrong: list[str], server: str, seconds: float) -> str:
    return "\n".join(_lines(asked, facts, wrong, server, seconds))


def _lines(asked: Terms, facts: Facts, wrong: list[str], server: str, seconds: float) -> Iterator[str]:
    yield f"seed {asked.seed}, {server}, {seconds:.0f} s under fire"
    yield f"{os.cpu_count()} processors, load average {os.getloadavg()[1]:.1f}"
    yield f"{asked.hosts} hosts of {terms.CHILDREN} processes with {terms.CONCURRENCY} places"
    yield f"{asked.pace:g} operations a second"
    yield (
        ", ".join(f"{name} {value}" for name, value in terms.WORKER_SETTINGS.items())
        + f", lease {terms.LEASE}"
    )
    yield ""
    yield from _table(("count", "what"), [(str(number), what) for what, number in figures(facts).items()])
    yield ""
    header = ("fault", "times", "jobs held", "taken back", "alone", "median s", "longest s", "with others s")
    rows = [
        (r.kind.replace("_", " "), *map(str, (r.times, r.held, r.taken_back, r.alone)), *_times(r))
        for r in recoveries(facts)
    ]
    yield from _table(header, rows)
    if asked.database == "sqlite":
        yield NOT_ON_SQLITE
    yield ""
    if wrong:
        yield f"{len(wrong)} PROMISES BROKEN"
        yield from (f"- {what}" for what in wrong[:SHOWN])
        if len(wrong) > SHOWN:
            yield f"- and {len(wrong) - SHOWN} more"
    else:
        yield "all promises kept"


def figures(facts: Facts) -> dict[str, int]:
    accepted = facts.told("accepted")
    outcomes = Counter(outcome for job in facts.jobs.values() for outcome in job.outcomes)
    return {
        "faults": len(facts.strikes),
        "operations accepted": len(accepted),
        "of them jobs and runs": sum(len(entry["ids"]) for entry in accepted),
        "lost": lost(facts),
        "jobs in all, with the steps of runs": len(facts.jobs),
        "runs": len(facts.runs),
        "settled twice": settled_twice(facts),
        "attempts crashed": outcomes["crashed"],
        "attempts given back": outcomes["released"],
        "bodies run": len(facts.told("begin")),
        "bodies repeated": repeated(facts),
        "effects of transaction()": len(facts.bookings),
        "applies to rows": len(facts.marks),
        "visits to rows": len(facts.told("visit")),
        "ticks of schedules that fired": _ticks(facts, "fired"),
        "ticks skipped, as the last had not ended": _ticks(facts, "skipped_overlap"),
        "ticks skipped, as they were missed": _ticks(facts, "skipped_missed"),
        "troubles of the producer": len(facts.told("trouble")),
    }


def _ticks(facts: Facts, outcome: str) -> int:
    ticks = [tick for schedule in facts.schedules.values() for tick in schedule.ticks]
    return sum(tick.number for tick in ticks if tick.outcome == outcome)


def _times(recovery: Recovery) -> tuple[str, str, str]:
    return _seconds(recovery.median), _seconds(recovery.longest), _seconds(recovery.longest_of_all)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|" + "|".join("---" if index == 0 else "---:" for index in range(len(header))) + "|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def version_of(rows: list[tuple[object, ...]] | None) -> str:
    return str(rows[0][0]) if rows else f"SQLite {sqlite3.sqlite_version}"
