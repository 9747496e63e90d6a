"""Resume tokens at work: making one for a wait of a run, and giving the signal that one allows.

Who gives it is decided by the lock on the run's row: there the token's time, the run, the signals given so far and the
step itself are looked at. The step's state is read, not locked; whoever ends a wait by its timeout looks for a signal
under the same lock before it commits (see `signals`), so one of the two sees the other.
"""

from __future__ import annotations

from penstock.database.transaction import Transaction
from penstock.errors import ConfigurationError, RunOver, TokenExpired, TokenSpent
from penstock.pipelines import answers
from penstock.pipelines.changes import RunMode
from penstock.pipelines.desk import Desk
from penstock.pipelines.paths import Path, path_text
from penstock.pipelines.reminders import place_of
from penstock.queue import audit
from penstock.settings import Settings
from penstock.values.resume_token import Ticket, fingerprint, read, sign
from penstock.values.status import JobStatus

NOW = "SELECT {now}"
LOCK = "SELECT status, mode, ended_at, {now} FROM {runs} WHERE id = :run {lock}"
STANDING = """
SELECT s.status FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND j.node {among:nodes:text} AND j.path = :path
"""


def issue(desk: Desk, tx: Transaction, run: str, name: str, path: Path, seconds: float) -> str:
    """A token for a signal that a step of this run waits for, now or later."""
    settings = desk.host.settings
    answers.check_place(desk, tx, run, name, path)
    row = tx.row(NOW)
    assert row is not None
    expires = int(row[0]) + int(seconds * 1_000_000)
    return sign(secrets_of(settings), place_of(settings), Ticket(run, name, path, expires))


def ticket_of(settings: Settings, token: str) -> Ticket:
    """What a token allows; raises `TokenForged`."""
    return read(secrets_of(settings), place_of(settings), token)


def secrets_of(settings: Settings) -> tuple[str, ...]:
    if settings.secret is None:
        raise ConfigurationError(
            "resume tokens need a secret, and none is set: Penstock(..., secret=...) or PENSTOCK_SECRET, "
            "the same for every process"
        )
    return settings.secret


class Use:
    """A token that is being used. If the answer to the commit was lost, it is used again, and finds itself there."""

    def __init__(self, desk: Desk, token: str, value: str) -> None:
        self.desk = desk
        self.ticket = ticket_of(desk.host.settings, token)
        self.fingerprint = fingerprint(token)
        self.value = value
        self._tried = False

    def __call__(self, tx: Transaction) -> None:
        """Give the signal; raises a `TokenError`, and then nothing is changed."""
        tx.stage("resume_token")
        run, name, path, expires = self.ticket
        status, mode, ended_at, now = tx.row(LOCK, run=run) or (None, None, None, 0)
        known = answers.find(tx, run, name, path_text(path))
        if known is not None and self._tried and known == self.value:
            return
        if status is None:
            raise RunOver(f"there is no run {run} any more; it has ended long ago, and was pruned")
        if now >= expires:
            raise TokenExpired(
                f"this token for {name!r} of run {run} has expired. Ask for a new one: run.token(...)"
            )
        if known is not None or self._is_answered(tx):
            raise TokenSpent(
                f"the wait for {name!r} of run {run} was answered before; app.audit(run) tells by whom"
            )
        if ended_at is not None or mode != RunMode.RUNNING:
            raise RunOver(f"run {run} is {status}: nothing in it waits any more")
        self._tried = True
        answers.write(tx, run, name, self.value, path)
        audit.of_run(tx, "signal", run, signal=name, path=list(path) or None, token=self.fingerprint)

    def _is_answered(self, tx: Transaction) -> bool:
        """The step that this is for has ended, such as by its timeout. Of all elements, some may be yet to come."""
        run, name, path, _ = self.ticket
        waits = answers.waits_for(self.desk, tx, run, name)
        nodes = [node.key for node in waits if node.depth == len(path)]
        if len(nodes) < len(waits):
            return False
        found = [status for (status,) in tx.rows(STANDING, run=run, nodes=nodes, path=path_text(path))]
        return len(found) == len(nodes) and JobStatus.WAITING not in found
