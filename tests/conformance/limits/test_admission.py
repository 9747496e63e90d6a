"""queue/limits/admission: which jobs run, which wait, in which order, and at what cost."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import penstock
from penstock import Concurrency, Penstock, Rate, Snooze
from penstock.errors import JobFailed
from penstock.queue.limits import upkeep
from penstock.testing import drain, inline, travel
from tests.conformance.concurrent_workers import held_slots, parked, together
from tests.conformance.rows import count, rows, state
from tests.waiting import until


def test_a_rate_lets_so_many_start_and_the_next_when_its_time_has_come(app: Penstock) -> None:
    ran: list[int] = []

    @app.task(name="note", limits=[Rate(2, per=60)])
    def note(number: int) -> None:
        ran.append(number)
        assert penstock.current().attempt == 1

    jobs = note.enqueue_many([(number,) for number in range(5)])
    assert drain(app) == 2
    assert [job.status for job in jobs] == ["succeeded"] * 2 + ["available"] * 3
    assert parked(app) == [("rate/60s of note", job.id) for job in jobs[2:]]
    assert count(app, "availabilities") == 0
    assert drain(app) == 0
    with travel(app, 59):
        assert drain(app) == 0
    with travel(app, 61):
        assert drain(app) == 2
    with travel(app, 122):
        assert drain(app) == 1
    assert ran == [0, 1, 2, 3, 4]
    waited = state(app, jobs[4].id)
    assert (waited["generation"], waited["retry_count"], waited["crash_count"]) == (1, 0, 0)
    assert len(jobs[4].attempts()) == 1


def test_each_key_by_itself(app: Penstock) -> None:
    ran: list[tuple[str, int]] = []

    @app.task(limits=[Rate(1, per=60, key="account")])
    def note(account: str, number: int = 0) -> None:
        ran.append((account, number))

    note.enqueue_many([("a", 1), ("a", 2), ("b", 3), ("b", 4), ("c", 5)])
    assert drain(app) == 3
    assert ran == [("a", 1), ("b", 3), ("c", 5)]


def test_a_key_may_be_computed_and_a_default_counts(app: Penstock) -> None:
    @app.task(
        name="note", limits=[Rate(1, per=60, key=lambda call: f"{call['region']}:{call['account'][0]}")]
    )
    def note(account: str, region: str = "eu") -> None: ...

    @app.task(name="plain", limits=[Rate(1, per=60, key="region")])
    def plain(region: str = "eu") -> None: ...

    note.enqueue_many([("ann",), ("abe",), ("ann", "us"), ("bob", "eu")])
    plain.enqueue_many([(), ("eu",), ("us",)])
    assert drain(app) == 5
    assert [key for key, _ in parked(app)] == ["rate/60s of note: key=eu:a", "rate/60s of plain: region=eu"]


def test_all_limits_have_to_fit(app: Penstock) -> None:
    """A job that goes over to the line of another limit leaves the slot to those behind it."""
    ran: list[str] = []

    @app.task(name="note", limits=[Rate(3, per=60), Rate(1, per=600, key="account")])
    def note(account: str) -> None:
        ran.append(account)

    note.enqueue_many([("a",), ("a",), ("b",), ("c",), ("a",), ("d",), ("e",)])
    assert drain(app) == 3
    assert ran == ["a", "b", "c"]
    with travel(app, 61):
        assert drain(app) == 2
        assert ran[3:] == ["d", "e"]
    with travel(app, 601):
        assert drain(app) == 1
    with travel(app, 1300):
        assert drain(app) == 1
    assert ran[5:] == ["a", "a"]
    assert parked(app) == []


def test_tasks_share_a_limit_by_name(app: Penstock) -> None:
    ran: list[str] = []

    @app.task(limits=[Rate(2, per=60, key="account", name="bank")])
    def charge(account: str) -> None:
        ran.append("charge")

    @app.task(limits=[Rate(2, per=60, key="customer", name="bank")])
    def refund(customer: str) -> None:
        ran.append("refund")

    charge.enqueue("a")
    refund.enqueue_many([("a",), ("a",), ("b",)])
    assert drain(app) == 3
    assert ran == ["charge", "refund", "refund"]
    assert [key for key, _ in parked(app)] == ["rate/60s bank: a"]


def test_who_has_waited_comes_before_who_has_not_and_the_urgent_before_both(app: Penstock) -> None:
    ran: list[str] = []

    @app.task(limits=[Rate(1, per=60)])
    def note(what: str) -> None:
        ran.append(what)

    note.enqueue_many([("first",), ("second",), ("third",)])
    drain(app)
    note.options(priority=5).enqueue("urgent")
    for day in range(1, 5):
        with travel(app, 61 * day):
            note.enqueue(f"late {day}")
            assert drain(app) == 1
    assert ran == ["first", "urgent", "second", "third", "late 1"]


def test_an_error_and_a_snooze_count_as_starts_and_hold_no_slot_while_they_wait(app: Penstock) -> None:
    ran: list[str] = []

    @app.task(retries=1, limits=[Concurrency(1), Rate(3, per=600)])
    def note(what: str) -> Any:
        ran.append(what)
        if what == "fail":
            raise ValueError(what)
        return Snooze(60) if what == "snooze" and ran.count(what) == 1 else None

    note.enqueue_many([("fail",), ("snooze",), ("plain",)])
    assert drain(app) == 3
    assert held_slots(app) == 0
    with travel(app, 120):
        assert drain(app) == 0  # both are due, and the rate is used up
        assert len(parked(app)) == 2
    with travel(app, 800):
        assert drain(app) == 2
    assert sorted(ran) == ["fail", "fail", "plain", "snooze", "snooze"]


def test_a_key_that_cannot_be_told_is_the_error_of_the_job(app: Penstock) -> None:
    @app.task(retries=0, limits=[Concurrency(1, key=lambda call: call["account"][0])])
    def note(account: str) -> str:
        return account

    empty, fine = note.enqueue(""), note.enqueue("ann")
    assert drain(app) == 2
    with pytest.raises(JobFailed, match="the key of Concurrency.* cannot be told: IndexError"):
        empty.result(timeout=0)
    assert fine.result(timeout=0) == "ann"
    assert held_slots(app) == 0


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize("error", [SystemExit(3), Unspeakable()])
def test_whatever_it_raises(app: Penstock, error: BaseException) -> None:
    def first(call: Mapping[str, Any]) -> object:
        if not call["account"]:
            raise error
        return call["account"]

    @app.task(retries=0, limits=[Concurrency(1, key=first)])
    def note(account: str) -> str:
        return account

    async def main() -> None:
        async with app.worker():
            empty, fine = await note.enqueue_many_async([("",), ("ann",)])
            with pytest.raises(JobFailed, match=f"cannot be told: .*{type(error).__name__}"):
                await empty.result_async(timeout=30)
            assert await fine.result_async(timeout=30) == "ann"

    asyncio.run(main())


@pytest.mark.parametrize("account", ["", " a ", "ä" * 300, "nul\0", "x=y: z", "\ud83d\ude00"])
def test_any_text_may_be_a_key(app: Penstock, account: str) -> None:
    account = account.encode("utf-16", "surrogatepass").decode("utf-16")

    @app.task(limits=[Rate(1, per=60, key="account")])
    def note(account: str) -> None: ...

    note.enqueue_many([(account,), (account,), ("other",)])
    assert drain(app) == 2
    assert len(parked(app)) == 1
    with travel(app, 61):
        assert drain(app) == 1


def test_a_parked_job_can_be_cancelled_and_makes_way(app: Penstock) -> None:
    ran: list[int] = []

    @app.task(limits=[Rate(1, per=60)])
    def note(number: int) -> None:
        ran.append(number)

    jobs = note.enqueue_many([(number,) for number in range(4)])
    assert drain(app) == 1
    assert jobs[1].cancel()
    assert jobs[2].cancel()
    assert jobs[1].status == "cancelled"
    with travel(app, 61):
        assert drain(app) == 1
    assert ran == [0, 3]
    assert parked(app) == []


def test_a_parked_job_that_is_cancelled_and_retried_has_one_place_only(app: Penstock) -> None:
    ran: list[int] = []

    @app.task(limits=[Rate(1, per=60)])
    def note(number: int) -> None:
        ran.append(number)

    jobs = note.enqueue_many([(number,) for number in range(3)])
    drain(app)
    assert jobs[1].cancel()
    assert jobs[1].retry()
    assert drain(app) == 0
    assert [job for _, job in parked(app)].count(jobs[1].id) == 1
    for day in (1, 2, 3):
        with travel(app, 61 * day):
            drain(app)
    assert sorted(ran) == [0, 1, 2]


def test_a_number_that_was_changed_counts_at_once(make_app: Callable[..., Penstock]) -> None:
    old, new = make_app(), make_app()
    ran: list[int] = []
    for app, most in ((old, 1), (new, 3)):

        @app.task(name="note", limits=[Rate(most, per=60)])
        def note(number: int) -> None:
            ran.append(number)

    old.tasks["note"].enqueue_many([(number,) for number in range(4)])
    assert drain(old) == 1
    new.tasks["note"].enqueue(4)
    assert drain(new) == 2
    assert ran == [0, 1, 2]


def test_steps_have_the_limits_of_their_tasks(app: Penstock) -> None:
    ran: list[str] = []

    @app.task(name="split")
    def split() -> list[str]:
        return ["a", "a", "b"]

    @app.task(name="load", limits=[Rate(1, per=60, key="account")])
    def load(account: str) -> str:
        ran.append(account)
        return account.upper()

    @app.task(name="join")
    def join(found: list[str]) -> str:
        return "".join(found)

    @app.pipeline(name="loading")
    def loading() -> Any:
        return join(load.map(split()).collect())

    run = loading.trigger()
    drain(app)
    assert ran == ["a", "b"]
    assert run.status == "running"
    assert app.engine.chores.repair(age=-1) == []  # it waits, and is not lost
    assert len(parked(app)) == 1
    with travel(app, 61):
        drain(app)
    assert run.result(timeout=0) == "AAB"


def test_a_paused_or_cancelled_run_takes_its_parked_steps_along(app: Penstock) -> None:
    ran: list[int] = []

    @app.task(name="numbers")
    def numbers() -> list[int]:
        return [1, 2, 3]

    @app.task(name="load", limits=[Rate(1, per=60)])
    def load(number: int) -> None:
        ran.append(number)

    @app.pipeline(name="loading")
    def loading() -> Any:
        return load.map(numbers()).collect()

    paused, cancelled = loading.trigger(), loading.trigger()
    drain(app)
    assert len(ran) == 1
    paused.pause()
    cancelled.cancel(grace=0)
    with travel(app, 61):
        drain(app)
        assert cancelled.status == "cancelled"
        assert len(ran) == 1
        paused.resume()
        for day in range(1, 4):
            with travel(app, 61 * day):
                drain(app)
    assert paused.status == "succeeded"
    assert len(ran) == 3
    assert parked(app) == []


def test_a_step_that_follows_at_once_is_held_only_if_it_may_run(app: Penstock) -> None:
    """The next step is held by the worker that settled the one before, without a look at the queue: not if it has
    limits."""
    inside: list[int] = []

    @app.task(name="first")
    async def first(number: int) -> int:
        return number

    @app.task(name="second", limits=[Concurrency(1)])
    async def second(number: int) -> int:
        inside.append(number)
        assert len(inside) == 1
        await asyncio.sleep(0.01)
        inside.remove(number)
        return number

    @app.pipeline(name="both")
    def both(number: int) -> Any:
        return second(first(number))

    async def main() -> None:
        runs = [await both.trigger_async(number) for number in range(6)]
        for run in runs:
            await until(lambda run=run: run.status == "succeeded")  # type: ignore[misc]

    together([app], main)
    assert held_slots(app) == 0


def test_inline_runs_what_may_run(app: Penstock) -> None:
    ran: list[int] = []

    @app.task(limits=[Concurrency(1)])
    def note(number: int) -> None:
        if number < 3:
            note.enqueue(number + 1)  # not before this one is over
        ran.append(number)

    with inline(app):
        note.enqueue(0)
    assert ran == [0, 1, 2, 3]


def test_at_rest_nothing_is_left(app: Penstock) -> None:
    @app.task(limits=[Concurrency(1), Rate(5, per=60, key="account")])
    def note(account: str) -> None: ...

    note.enqueue_many([(f"account {number}",) for number in range(20)])
    assert drain(app) == 20
    app.database.in_transaction(upkeep.tidy)
    assert (count(app, "limits"), count(app, "slots")) == (20, 20)
    with travel(app, 61):
        app.database.in_transaction(upkeep.tidy)
        assert (count(app, "limits"), count(app, "slots"), count(app, "parked")) == (0, 0, 0)


def test_a_line_whose_key_was_lost_is_found_again(app: Penstock) -> None:
    @app.task(limits=[Rate(1, per=60)])
    def note(number: int) -> None: ...

    note.enqueue_many([(1,), (2,)])
    drain(app)
    app.database.in_transaction(lambda tx: tx.run("DELETE FROM {limits}"))
    with travel(app, 61):
        app.database.in_transaction(upkeep.tidy)
        assert drain(app) == 1


def test_a_job_without_limits_pays_nothing(app: Penstock) -> None:
    statements: list[str] = []

    @app.task
    def note() -> None: ...

    @app.task(limits=[Concurrency(1)])
    def other() -> None: ...

    note.enqueue()
    execute = app.database.dialect.execute

    def counted(driver: Any, opened: object, sql: str, parameters: Any) -> Any:
        statements.append(sql)
        return execute(driver, opened, sql, parameters)

    app.database.dialect.execute = counted  # type: ignore[method-assign]
    assert drain(app) == 1
    looks = [sql for sql in statements if "penstock_limits" in sql or "penstock_slots" in sql]
    assert looks
    assert all("penstock_scheduled" in sql for sql in looks)  # the look that is made in any case
    assert rows(app, "SELECT 1 FROM {limits}") == []
