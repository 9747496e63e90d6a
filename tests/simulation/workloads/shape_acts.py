"""What clients do with runs: signals, pauses, cancels, revives, chains; all of that also to what runs are made of."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from penstock.errors import ActionRefused, CancelConflict, PenstockError, ReviveError
from tests.simulation.hosts import ClientHost
from tests.simulation.workloads import Act
from tests.simulation.workloads.shape_author import shaped, signalled, waits

OVER = ("succeeded", "failed", "halted", "cancelled", "skipped")
CHILDREN = "SELECT id FROM {runs} WHERE parent_run_id = :run ORDER BY id"
STEPS = """
SELECT j.id FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND s.status IN ('waiting', 'scheduled', 'available', 'running') ORDER BY j.id
"""
FAILED = """
SELECT DISTINCT j.node FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND s.status = 'failed' ORDER BY j.node
"""

Ids = dict[int, str]
"""The runs that were accepted, by their number."""


class Given(NamedTuple):
    """A run that clients know of: its number, what it looks like, and all ids."""

    number: int
    shape: int
    strategy: str
    ids: Ids


Deed = Callable[[ClientHost, Given], None]


def insisting(deed: Deed, given: Given) -> Act:
    """Again and again until it is done: what is asked for here names its run, so it can be repeated."""

    def insist(client: ClientHost) -> None:
        client.world.sleep(client.world.rng.choice([0.0, 0.0, 0.3, 2.0]))
        while True:
            try:
                return deed(client, given)
            except (ActionRefused, CancelConflict, ReviveError) as refused:
                client.world.note(client.name, f"was refused: {refused}")
                return None
            except PenstockError as error:
                if "there is no" in str(error):
                    return client.world.note(client.name, f"found nothing: {error}")
                client.world.note(client.name, f"tries again: {error}")
                client.world.sleep(1.0)

    return insist


def aside(act: Act) -> Act:
    """In a thread of its own, beside what the client does next."""

    def begin(client: ClientHost) -> None:
        client.world.spawn("aside", lambda: act(client), client)

    return begin


def stay(client: ClientHost) -> None:
    """For those beside it."""
    client.world.sleep(client.world.rng.choice([1.0, 5.0]))


def trigger(client: ClientHost, given: Given) -> None:
    key = f"shape-{given.number}"
    run = shaped(client.app, given.shape, given.strategy).options(key=key).trigger("hello")
    given.ids[given.number] = run.id
    client.world.record("triggered", run.id, "shape", key)


def _run(client: ClientHost, given: Given) -> Any:
    """The run of that number, once the other client has it."""
    while given.number not in given.ids:
        client.world.sleep(1.0)
    return client.app.run(given.ids[given.number])


def signal_all(client: ClientHost, given: Given) -> None:
    run = _run(client, given)
    for name in waits(shaped(client.app, given.shape, given.strategy).definition):
        if run.signal(name, signalled(name)):
            client.world.record("signalled", run.id, name)


def cancel(client: ClientHost, given: Given) -> None:
    run = _run(client, given)
    client.world.record("asks run cancel", run.id)
    run.cancel(grace=client.world.rng.choice([0, 1, 1, 5]))


def pause(client: ClientHost, given: Given) -> None:
    """For a while."""
    run = _run(client, given)
    run.pause()
    client.world.sleep(client.world.rng.choice([0.0, 1.0, 5.0]))
    run.resume()


def then(client: ClientHost, given: Given) -> None:
    _run(client, given).then(client.app.pipelines["small"], given.number)


def revive(client: ClientHost, given: Given) -> None:
    _again(client, given, lambda run: run.revive())


def retry_step(client: ClientHost, given: Given) -> None:
    """Of all that failed one step is done again."""

    def again(run: Any) -> Any:
        failed = _found(client, FAILED, run.id)
        if not failed:
            raise ReviveError(f"nothing has failed in {run.id}")
        return run.retry_step(client.world.rng.choice(failed))

    _again(client, given, again)


def fork(client: ClientHost, given: Given) -> None:
    """Some step, and what depends on it, is done again, whatever became of it."""
    nodes = shaped(client.app, given.shape, given.strategy).definition.nodes
    steps = [node.key for node in nodes if node.kind.is_step]
    _again(client, given, lambda run: run.fork(client.world.rng.choice(steps)))


def _again(client: ClientHost, given: Given, act: Callable[[Any], Any]) -> None:
    run = _ended(client, given)
    try:
        given.ids[given.number] = act(run).id
    except ReviveError:
        # An earlier life of this client may have revived it, and died before it sent the signals.
        with suppress(ActionRefused):
            signal_all(client, given)
        raise
    client.world.record("revived", run.id, given.ids[given.number])
    signal_all(client, given)


def _ended(client: ClientHost, given: Given) -> Any:
    """The run of that number, when it is over or has taken too long for that."""
    run = _run(client, given)
    for _ in range(20):
        if run.status in OVER:
            break
        client.world.sleep(2.0)
    return run


def revive_child_at_last(client: ClientHost, given: Given) -> None:
    """Once its parent is over; and then nothing is done for as long as it takes to be old."""
    for child in _found(client, CHILDREN, _ended(client, given).id):
        client.app.run(child).revive()
    client.world.sleep(12.0)


def cancel_child(client: ClientHost, given: Given) -> None:
    """Without its parent."""
    run = _run(client, given)
    for child in _found(client, CHILDREN, run.id):
        client.world.record("meddled", run.id)
        client.app.run(child).cancel(grace=0)


def revive_child(client: ClientHost, given: Given) -> None:
    for child in _found(client, CHILDREN, _run(client, given).id):
        client.app.run(child).revive()


def cancel_step(client: ClientHost, given: Given) -> None:
    run = _run(client, given)
    steps = _found(client, STEPS, run.id)
    if steps:
        client.world.record("meddled", run.id)
        client.app.job(client.world.rng.choice(steps)).cancel()


def _found(client: ClientHost, sql: str, run: str) -> list[str]:
    return [str(row[0]) for row in client.app.database.read(lambda tx: tx.rows(sql, run=run))]
