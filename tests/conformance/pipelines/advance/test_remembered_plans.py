"""pipelines/advance/fast_path: the steps of a cached plan are those of a fresh plan."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from penstock import Penstock, stop_run
from penstock.database.transaction import Transaction
from penstock.queue.jobs import Claim
from penstock.values.status import RunStatus
from tests.conformance.pipelines.random_worker import RandomWorker

Build = Callable[[Penstock], Any]


def chain(app: Penstock) -> Any:
    """Outputs, arguments of the run, constants, and all of them in lists and dicts."""

    @app.task
    def first(number: int, day: date) -> dict[str, Any]:
        return {"number": number, "day": day}

    @app.task
    def second(found: dict[str, Any], *, words: list[Any], by: dict[str, Any]) -> str:
        return f"{found['number']} {found['day']} {words} {by}"

    @app.task
    def third(text: str, fixed: int = 3) -> str:
        return f"{text} {fixed}"

    @app.pipeline
    def made(number: int, day: date) -> object:
        found = first(number, day)
        return third(second(found, words=[found, number, "word"], by={"day": day, "found": found}))

    return made


def spread(app: Penstock) -> Any:
    """Several follow one; what they come to is joined, and expanded."""

    @app.task
    def first(number: int, day: date) -> int:
        return number + day.day

    @app.task
    def twice(number: int) -> list[int]:
        return [number, 2 * number]

    @app.task
    def total(parts: list[Any]) -> list[Any]:
        return sorted(parts, key=str)

    @app.pipeline
    def made(number: int, day: date) -> object:
        found = first(number, day)
        return total([total(twice(found)), total(twice.map(twice(found)).collect())])

    return made


@pytest.mark.parametrize("build", [chain, spread])
def test_a_second_run_comes_to_what_the_first_would(app: Penstock, build: Build) -> None:
    """Each argument list comes first once and second once: in whichever order, the results are the same."""
    made = build(app)
    inputs = [(1, date(2024, 2, 29)), (2, date(2025, 1, 1)), (1, date(2024, 2, 29))]
    results = []
    for number, given in enumerate(inputs):
        run = made.trigger(*given)
        RandomWorker(app, number).run()
        results.append(run.result(0))
    assert results[0] == results[2] != results[1]
    assert bool(app.engine.engine_state.cached_steps) == app.database.dialect.fast_path.plan


def test_it_is_held_with_its_arguments(app: Penstock) -> None:
    made = chain(app)
    day = date(2024, 2, 29)
    for _ in range(2):
        made.trigger(1, day)
        worker = RandomWorker(app, 0)
        worker.run()
    run = made.trigger(1, day)
    (claim,) = app.database.in_transaction(worker.settle_and_claim, [], 1)
    worker.source.committed()
    with app.database.transaction() as tx:
        held = worker.source.settle(tx, [worker.execute(claim)], room=1)
        complete = worker.source.complete(tx, held)
    worker.source.committed()
    shorter = app.database.dialect.fast_path.plan
    assert [step.call is not None for step in held] == [shorter]
    assert [step.definition for step in complete] == [made.runnable.hash]
    if shorter:
        assert complete == held, "nothing was left to ask for"
    worker.held = complete
    worker.run()
    assert run.status is RunStatus.SUCCEEDED


def test_a_claim_of_which_something_is_kept_keeps_its_receipt(app: Penstock) -> None:
    """Two steps are held at once, under one token: one goes on, the other begins a child run and is held no longer."""

    @app.task
    def same(number: int) -> int:
        return number

    part = app.flow("part").start(same)

    @app.pipeline
    def two(number: int) -> object:
        return [same(same(number)), part(same(number))]

    made, worker = two, RandomWorker(app, 0)
    for _ in range(2):
        made.trigger(1)
        worker.run()
    made.trigger(1)
    claims = app.database.in_transaction(worker.settle_and_claim, [], 2)
    worker.source.committed()
    with app.database.transaction() as tx:
        held = worker.source.settle(tx, [worker.execute(claim) for claim in claims], room=2)
        going = worker.source.complete(tx, held)
    assert (len(held), len(going)) == (2, 1)
    receipts = app.database.read(lambda tx: tx.rows("SELECT token FROM {claims}"))
    assert [token for (token,) in receipts] == [claim.token for claim in going], "or no reaper would find it"


def test_an_end_that_is_not_the_usual_one_is_planned(app: Penstock) -> None:
    """Of a node whose successes lead on without a plan, failures and early stops do not."""
    ran: list[str] = []

    @app.task(retries=0)
    def first(how: str) -> str:
        if how == "fail":
            raise ValueError("as told")
        if how == "stop":
            stop_run("stopped")
        return how

    @app.task
    def second(how: str) -> str:
        ran.append(how)
        return how.upper()

    made = app.flow("ends").start(first).chain(second)
    worker = RandomWorker(app, 0)
    runs = [made.trigger(how) for how in ("on", "on", "fail", "stop", "on")]
    for run in runs:
        while not run.status.terminal:
            worker.turn()
    assert [run.status for run in runs] == [
        RunStatus.SUCCEEDED,
        RunStatus.SUCCEEDED,
        RunStatus.HALTED,
        RunStatus.SUCCEEDED,
        RunStatus.SUCCEEDED,
    ]
    assert [run.result(0) for run in runs if run.status is RunStatus.SUCCEEDED] == [
        "ON",
        "ON",
        "stopped",
        "ON",
    ]
    assert ran == ["on"] * 3


def test_a_halt_in_the_same_batch_counts(app: Penstock) -> None:
    """The step beside it has succeeded as usual; but when that is settled, the run is halted already."""
    broken = False

    @app.task
    def plain(number: int) -> int:
        return number

    @app.task(retries=0)
    def fragile(number: int) -> int:
        if broken:
            raise ValueError("as told")
        return number

    @app.pipeline
    def beside(number: int) -> object:
        found = plain(number)
        return [plain(plain(found)), fragile(found)]

    worker = RandomWorker(app, 0)
    for _ in range(2):
        run = beside.trigger(1)
        while not run.status.terminal:
            worker.turn()
    broken = True
    run = beside.trigger(1)
    _settle_with_room(worker)
    _settle_with_room(worker)
    worker.held.sort(key=lambda claim: claim.task != fragile.name)
    assert [claim.task for claim in worker.held] == [fragile.name, plain.name]
    while not run.status.terminal:
        _settle_with_room(worker)
    assert run.status is RunStatus.HALTED
    assert [str(step.status) for step in run.steps() if step.key == "plain_3"] == ["skipped"]


def test_a_revived_run_keeps_what_was_done(app: Penstock) -> None:
    """The second step follows the first without a plan; in the revival it has been done before, and is not again."""
    ran: list[str] = []
    broken: set[str] = set()

    def does(name: str) -> Any:
        def step(_: object) -> str:
            ran.append(name)
            if name in broken:
                raise ValueError("not yet")
            return name

        return app.task(name=name, retries=0)(step)

    made = (
        app.flow("three")
        .start(does("first").options(on_failure="ignore"))
        .chain(does("second"))
        .chain(does("third"))
    )
    worker = RandomWorker(app, 0)
    for _ in range(2):
        made.trigger(1)
        worker.run()
    broken |= {"first", "third"}
    run = made.trigger(1)
    worker.run()
    assert run.status is RunStatus.HALTED
    broken.clear()
    ran.clear()
    again = run.revive()
    while not again.status.terminal:
        _settle_with_room(worker)
    assert again.result(0) == "third"
    assert ran == ["first", "third"]


def _settle_with_room(worker: RandomWorker) -> None:
    """What follows is held at once, whenever that can be."""
    done, worker.held = [worker.execute(claim) for claim in worker.held], []

    def turn(tx: Transaction) -> list[Claim]:
        worker.source.lanes.force_sweep()
        claims = worker.source.settle(tx, done, room=5) if done else worker.source.claim(tx, 5)
        return worker.source.complete(tx, claims)

    worker.held = worker.app.database.in_transaction(turn)
    worker.source.committed()
