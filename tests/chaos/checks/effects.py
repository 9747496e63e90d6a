"""Effects: of transaction() exactly once, of once() always the same, in the caller's transaction or not at all."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos import plan
from tests.chaos.facts import Facts


def effects(facts: Facts) -> Iterator[str]:
    yield from _bookings(facts)
    yield from _once(facts)
    yield from _orders(facts)


def _bookings(facts: Facts) -> Iterator[str]:
    booked = Counter(job for job, _ in facts.bookings)
    done = {job.id for job in facts.jobs.values() if job.task == "book" and job.status == "succeeded"}
    for id, times in booked.items():
        if times > 1:
            yield f"effect of transaction() {times} times: {id}"
    for id in sorted(set(booked) - done):
        yield f"effect of transaction() without the job's completion: {id}"
    for id in sorted(done - set(booked)):
        yield f"completion without the effect of transaction(): {id}"


def _once(facts: Facts) -> Iterator[str]:
    values: dict[str, set[str]] = defaultdict(set)
    for entry in facts.told("once"):
        values[entry["job"]].add(entry["value"])
    for id, said in values.items():
        job = facts.jobs.get(id)
        if job is not None and job.status == "succeeded":
            said = said | {job.result}
        if len(said) > 1:
            yield f"once() said {sorted(said)} in {id}"


def _orders(facts: Facts) -> Iterator[str]:
    """An order and its job were written in one transaction of the producer's."""
    numbers = [entry["number"] for entry in facts.told("intend") if entry["kind"] == "ordered"]
    keys = {job.key for job in facts.jobs.values()}
    for number in sorted(set(numbers)):
        key = plan.Operation(number, "ordered").key
        if (number in facts.orders) != (key in keys):
            yield f"order {number} and its job must both be there or neither"
    for entry in facts.told("accepted"):
        if entry["kind"] == "ordered" and entry["number"] not in facts.orders:
            yield f"lost: order {entry['number']} was committed and is not there"
