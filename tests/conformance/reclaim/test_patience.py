"""queue/reclaim: each process is judged by its own `reap_after`: a deploy that changes it declares none dead."""

from collections.abc import Callable

import pytest

from penstock import Penstock
from penstock.database.dialect import Lane
from penstock.operate.overview import overview
from penstock.operate.processes import list_processes
from penstock.pipelines.maintenance.idle_check import IdleQuery, run_idle_check
from penstock.queue import reclaim
from penstock.queue.claim import claim
from penstock.queue.jobs import tier_of
from penstock.runtime.liveness.process_row import Identity
from penstock.values.ids import new_id, new_token
from tests.conformance.rows import count

AppOn = Callable[..., Penstock]
IMPATIENT = {"reap_after": 20, "heartbeat_interval": 5}
PATIENT = {"reap_after": 600, "heartbeat_interval": 200}
AGE = "UPDATE {processes} SET heartbeat_at = heartbeat_at - 100000000"
UNSAID = "UPDATE {processes} SET reap_after = NULL"


@pytest.mark.parametrize(
    ("judge", "other", "dead"), [(IMPATIENT, PATIENT, False), (PATIENT, IMPATIENT, True)]
)
def test_no_process_is_judged_by_the_settings_of_another(
    app_on: AppOn, database_url: str, judge: dict[str, float], other: dict[str, float], dead: bool
) -> None:
    app = app_on(database_url, **judge)
    _holder(app_on(database_url, **other))
    assert _is_dead(app) is dead


@pytest.mark.parametrize(("judge", "dead"), [(IMPATIENT, True), (PATIENT, False)])
def test_who_has_not_said_is_judged_by_the_judge(
    app_on: AppOn, database_url: str, judge: dict[str, float], dead: bool
) -> None:
    """An older version, which did not say."""
    app = app_on(database_url, **judge)
    _holder(app)
    app.database.in_transaction(lambda tx: tx.run(UNSAID))
    assert _is_dead(app) is dead


@pytest.mark.parametrize(
    ("judge", "other", "dead"), [(IMPATIENT, PATIENT, False), (PATIENT, IMPATIENT, True)]
)
def test_nor_by_one_who_rests(
    app_on: AppOn, postgres_url: str, judge: dict[str, float], other: dict[str, float], dead: bool
) -> None:
    app = app_on(postgres_url, **judge)
    _holder(app_on(postgres_url, **other))
    wanted = IdleQuery(app.task_names, None, "", app.settings.reap_after)
    seen = app.database.in_transaction(run_idle_check, new_id(), wanted, "no_channel", "word")
    assert seen.holder_silent is not None
    assert seen.silent is not None
    assert (seen.holder_silent < 0, seen.silent < 0) == (dead, dead)


def _holder(app: Penstock) -> None:
    """A process that holds a job, and was heard of 100 s ago."""

    @app.task(name="note")
    def note() -> None: ...

    identity = Identity(app.database, app.events, "worker")
    identity.register()
    note.enqueue()
    lanes = [Lane("default", tier_of(0), 0, 1)]
    assert app.database.in_transaction(claim, lanes, app.task_names, 1, new_token(), identity.id)[0]
    app.database.in_transaction(lambda tx: tx.run(AGE))


def _is_dead(app: Penstock) -> bool:
    """All who look agree; and the reaper does what they say."""
    silence, me = app.settings.reap_after, new_id()
    silent_in = app.database.read(reclaim.look, silence, me).silent_in
    assert silent_in is not None
    (row,) = app.database.read(list_processes)
    shown = app.database.read(overview, silence).processes
    reaped = app.database.in_transaction(reclaim.reap_silent, silence, me)
    dead = silent_in < 0
    assert (row.is_silent(silence), not shown, bool(reaped), count(app, "processes") == 0) == (dead,) * 4
    return dead
