"""What can be broken about tasks, and is noticed."""

from __future__ import annotations

import time
from typing import Any

from penstock.database import cursor_dialect
from penstock.database.cursor_dialect import ByCursor
from penstock.job_transaction import TransactionScope
from penstock.queue import claim, control, job_records, processes, reclaim, schedule, settle, states
from penstock.queue.jobs import MOST_COUNTED, Attempt
from penstock.queue.rules import unique_keys
from penstock.runtime.executors.async_executor import LoopExecutor
from penstock.runtime.liveness.outage_guard import OutageGuard
from penstock.runtime.liveness.reaper import Reaper
from penstock.runtime.pump import job_source
from penstock.runtime.pump.lanes import Lanes
from penstock.runtime.pump.pump import Pump
from penstock.runtime.worker import Worker
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind
from tests.simulation.mutants import Code, Instead, Mutant, Sql

ONE_MORE = f"crash_count = crash_count + CASE WHEN crash_count < {MOST_COUNTED} THEN 1 ELSE 0 END"
LOCAL = "sim_host_now()"
"""The clock of the host that asks, which may be an hour off."""


def _reap_in_two_steps(self: Reaper) -> bool:
    """Who was silent a moment ago is dead now, whatever it has said since."""
    micros = int(self.settings.reap_after * 1_000_000)
    rows = self.database.read(lambda tx: tx.rows(reclaim.SILENT, silence=micros, me=self.me()))
    for row in rows:
        self.database.in_transaction(reclaim.remove_process, row[0])
    return self.reclaim() or bool(rows)


COMPARE = OutageGuard.compare


def _compare_by_local_clock(self: OutageGuard, micros: int, asked: float, shift: int) -> float:
    """How long a process waits before it judges is what its own clock says."""
    return COMPARE(self, int(time.monotonic() * 1_000_000), asked, shift)


def _settle_first(self: TransactionScope) -> Any:
    """The job is done before its effects are."""
    self.around.database.in_transaction(_succeed, self)
    self._shared = self.around.database.sqlalchemy()
    connection, self._tx = self._shared.__enter__()
    self.open = True
    return connection


def _settle_afterwards(self: TransactionScope, kind: Any, error: Any, trace: Any) -> None:
    """The effects are there before the job is done."""
    self.open = False
    assert self._shared is not None
    self._shared.__exit__(kind, error, trace)
    if error is None:
        self.around.database.in_transaction(_succeed, self)
        self.committed = True


def _succeed(tx: Any, scope: TransactionScope) -> None:
    outcome = Outcome(OutcomeKind.SUCCEEDED, output=str(scope.claim.generation))
    settle.settle(tx, [Attempt(scope.claim, outcome)], scope.around.process)


def _nothing(*_: object) -> None:
    """What should happen does not."""


MUTANTS: dict[str, Mutant] = {
    "fence removed": Mutant(
        26,
        Code(settle._through_the_fence, "if token != attempt.claim.token:", "if token is None:"),
        # One execution per attempt is a second fence, behind the first.
        Code(states.record_attempts, '"executions", rows,', '"executions", rows, ignore_duplicates=True,'),
        loss=0.1,
        freeze=0.03,
        linger=0.2,
        trouble=220,
    ),
    "claim ignores the status": Mutant(
        3,
        Sql(cursor_dialect, "HOLD", " AND status = 'available'", ""),
    ),
    "generation not incremented": Mutant(
        0,
        Sql(cursor_dialect, "HOLD", "generation = generation + 1, ", ""),
    ),
    "what arrives late is kept": Mutant(
        2,
        Instead(job_source.HeldClaims, "knows", lambda *_: True),
        late=0.05,
    ),
    "tokens used again": Mutant(
        0,
        Instead(job_source, "new_token", lambda: 7),
    ),
    "claim without a receipt": Mutant(
        0,
        Code(ByCursor.take_ready, "if held:", "if False:"),
    ),
    "claims for a process that is gone": Mutant(
        15,
        Code(ByCursor.take_ready, "if not tx.rows(REGISTERED, process=process):", "if False:"),
        loss=0.3,
        trouble=220,
    ),
    "a job in the queue twice is claimed twice": Mutant(
        5,
        Code(claim.claim, "generation is not None and id not in met", "generation is not None"),
    ),
    "reaper without a second look": Mutant(
        2,
        Instead(Reaper, "turn", _reap_in_two_steps),
    ),
    "reaper by the local clock": Mutant(
        3,
        Sql(reclaim, "SILENT", "< {now}", f"< {LOCAL}"),
        Sql(reclaim, "REMOVE_SILENT", ":now", LOCAL),
    ),
    "reclaim from the living": Mutant(
        5,
        Sql(reclaim, "ORPHANED", "NOT EXISTS", "EXISTS"),
    ),
    "reclaim keeps the receipts": Mutant(
        5,
        Code(reclaim.reclaim, "if tokens - locked:", "if False:"),
    ),
    "crash counted as a retry": Mutant(
        3,
        Sql(states, "CRASH", ONE_MORE, "retry_count = retry_count + 1"),
    ),
    "crash counted for nothing": Mutant(
        3,
        Sql(states, "CRASH", f"{ONE_MORE},", ""),
    ),
    "errors spend nothing": Mutant(
        0,
        Sql(states, "PUT_BACK", "retry_count + :spent", "retry_count"),
    ),
    "release spends a crash": Mutant(
        0,
        Sql(states, "GIVE_BACK", "status = :status", "status = :status, crash_count = crash_count + 1"),
        home=1.0,
    ),
    "a stop counts as an error": Mutant(
        1,
        Code(Outcome.spends_retry.fget, "self.kind in (", "self.kind in (OutcomeKind.RELEASED, "),  # type: ignore[attr-defined]
        home=1.0,
    ),
    "cancellation ignored by the settle": Mutant(
        8,
        Code(settle._through_the_fence, "if cancelled:", "if False:"),
    ),
    "settled before the effects": Mutant(
        2,
        Instead(TransactionScope, "__enter__", _settle_first),
        Instead(TransactionScope, "_settle", _nothing),
    ),
    "settled after the effects": Mutant(
        2,
        Instead(TransactionScope, "__exit__", _settle_afterwards),
    ),
    "once() forgets": Mutant(
        0,
        Code(job_records.find, "return None if row is None else str(row[0])", "return None"),
    ),
    "promotion leaves the schedule": Mutant(
        0,
        Code(schedule.promote, "tx.run(REMOVE, ", "dict(REMOVE=REMOVE, "),
    ),
    "promotion by the local clock": Mutant(
        0,
        Sql(schedule, "DUE", "{now}", LOCAL),
    ),
    "promotion of whatever is there": Mutant(
        3,
        Sql(schedule, "DUE", "due_at <= {now}", "due_at > 0"),
    ),
    "delays by the local clock": Mutant(
        0,
        Code(states.put_in_place, '"{now} + :wait"', f'"{LOCAL} + :wait"'),
    ),
    "signs of life by the local clock": Mutant(
        3,
        Sql(processes, "BEAT", "{now}", LOCAL),
        Instead(reclaim, "bring_back", _nothing),  # which mends it, where the local clock is ahead
    ),
    "newcomers judge at once": Mutant(
        25,
        Instead(OutageGuard, "arrive", _nothing),
        delay=0.05,
        crash=0.02,
    ),
    "who was cut off judges at once": Mutant(
        5,
        Code(OutageGuard.exchanged, "self._wait_for(self.silence)", "pass"),
        # Who is cut off is not heard of, either: that is a second reason, behind the first.
        Instead(OutageGuard, "_was_stopped", lambda *_: False),
        outage=0.01,
        trouble=220,
    ),
    "newcomers wait by the local clock": Mutant(
        49,
        Instead(OutageGuard, "compare", _compare_by_local_clock),
        # By a clock that leaps it seems to have been stopped: that is a second reason, behind the first.
        Instead(OutageGuard, "_was_stopped", lambda *_: False),
        delay=0.05,
        crash=0.02,
        jump=0.05,
    ),
    "who was stopped judges at once": Mutant(
        32,
        Instead(OutageGuard, "_was_stopped", lambda *_: False),
        delay=0.05,
        freeze=0.02,
        trouble=220,
    ),
    "key not looked up": Mutant(
        3,
        Code(unique_keys.claim_key, "there and _keeps_key(tx, holder, job)", "False"),
    ),
    "hints instead of polling": Mutant(
        11,
        Code(Lanes.sweep_is_due, "now >= self._next_sweep + patience or ", ""),
    ),
    "outcomes dropped after an error": Mutant(
        20,
        Code(Pump._put_back, "self._outbox.extendleft(reversed(finished))", "pass"),
        commit=0.3,
        statement=0.03,
    ),
    "lost claims stay in the register": Mutant(
        22,
        Code(Worker._declared_dead, "self.source.holdings.clear()", "pass"),
        # Each is also forgotten by itself when its handler has been told.
        Code(Worker._lost, "self.source.forget([claim])", "pass"),
        loss=0.3,
        trouble=220,
    ),
    "claims with a lost answer forgotten": Mutant(
        1,
        Instead(job_source.JobSource, "recover", _nothing),
    ),
}
STEERING: dict[str, Mutant] = {
    "retried with old budgets": Mutant(
        22,
        Sql(states, "RETRY", "retry_count = 0, crash_count = 0,", ""),
    ),
    "lost answers not given again": Mutant(
        2,
        Code(control._counting_earlier_tries, "tried.update(done)", "pass"),
        commit=0.4,
    ),
}
BLOCKS: dict[str, Mutant] = {
    "a handler that never began does not end": Mutant(
        7,
        Code(LoopExecutor.interrupt, "if not work.started:", "if False:"),
        home=1.0,
        stall=0.04,
        linger=0.1,
    ),
}
