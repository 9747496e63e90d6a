"""queue/processes: Children of a supervisor that are gone: dead ones crash their work, stopped ones give it back.
Invariants 10, 11.
"""

from penstock import Penstock
from penstock.operate.processes import list_processes
from penstock.queue import processes, reclaim
from penstock.queue.jobs import Attempt, Claim
from penstock.queue.settle import settle
from penstock.testing import drain
from penstock.values.ids import new_id
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind
from penstock.values.typed_json.json_text import dumps
from tests.conformance.operate.helpers import enqueue, look, register, take


def child(app: Penstock, supervisor: str, child_key: str) -> str:
    return register(app, supervisor=supervisor, details=dumps({"birth": child_key}))


def test_only_the_child_of_that_birth_is_buried(app: Penstock) -> None:
    app.prepare()
    ours, theirs = new_id(), new_id()
    dead, alive, foreign = child(app, ours, "a"), child(app, ours, "b"), child(app, theirs, "a")
    assert [row.id for row in app.database.read(processes.children, ours)] == [dead, alive]
    assert app.database.in_transaction(processes.reap_child, ours, "a") == [dead]
    assert app.database.in_transaction(processes.reap_child, ours, "a") == []
    assert {row.id for row in app.database.read(list_processes)} == {alive, foreign}


def test_the_work_of_a_buried_child_spends_a_crash(app: Penstock) -> None:
    job = enqueue(app, "quick", 1)
    take(app, child(app, supervisor := new_id(), "a"))
    app.database.in_transaction(processes.reap_child, supervisor, "a")
    assert [crashed.job_id for crashed in app.database.in_transaction(reclaim.reclaim)] == [job.id]
    assert [attempt.outcome for attempt in job.attempts()] == ["crashed"]
    drain(app)
    assert job.result(timeout=0) == 1


def test_the_work_of_a_child_that_was_stopped_spends_nothing(app: Penstock) -> None:
    jobs = [enqueue(app, "quick", number, priority=number) for number in range(3)]
    claims = take(app, child(app, supervisor := new_id(), "a"))
    ids = app.database.read(processes.rows_of_child, supervisor, "a")
    given_back = app.database.in_transaction(processes.leave, ids)
    assert sorted(given_back) == sorted(job.id for job in jobs)
    assert app.database.in_transaction(reclaim.reclaim) == []
    assert look(app).queues[0].available == 3
    assert [attempt.outcome for job in jobs for attempt in job.attempts()] == ["released"] * 3
    assert app.database.read(lambda tx: tx.rows("SELECT * FROM {claims}")) == []
    assert _late_settle_is_lost(app, claims)
    drain(app)
    assert [job.result(timeout=0) for job in jobs] == [0, 1, 2]


def test_what_was_to_be_cancelled_is_cancelled_when_its_process_leaves(app: Penstock) -> None:
    job = enqueue(app, "quick", 1)
    process = register(app)
    take(app, process)
    job.cancel()
    assert app.database.in_transaction(processes.leave, [process]) == []
    app.database.in_transaction(reclaim.reclaim)
    assert job.status == "cancelled"


def test_leaving_may_be_repeated(app: Penstock) -> None:
    app.prepare()
    process = register(app)
    assert app.database.in_transaction(processes.leave, [process]) == []
    assert app.database.in_transaction(processes.leave, [process]) == []
    assert app.database.in_transaction(processes.leave, []) == []


def _late_settle_is_lost(app: Penstock, claims: list[Claim]) -> bool:
    """The stopped child was not quite dead: what it still writes counts for nothing."""
    late = [Attempt(claim, Outcome(OutcomeKind.SUCCEEDED, output="9")) for claim in claims]
    settled = app.database.in_transaction(settle, late, new_id())
    return not settled.accepted
