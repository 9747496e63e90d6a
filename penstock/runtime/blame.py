"""An outcome that the database refuses, although it takes others: what is to be written in its place. Pure."""

from __future__ import annotations

from penstock.errors import AdvancementFailed
from penstock.queue.jobs import Attempt
from penstock.values.failure import Failure
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind, Reason


def blamed(finished: Attempt, error: Exception) -> Attempt | None:
    """First a failure with that error. If that is refused too, no more than that it has failed; None: not even that."""
    if isinstance(error, AdvancementFailed):
        return _unplanned(finished, error)
    if finished.outcome.reason is not Reason.RESULT_NOT_SERIALIZABLE:
        return finished._replace(outcome=_failed(Failure.of(error)))
    return finished._replace(outcome=_failed(None), began=False) if finished.began else None


def _failed(failure: Failure | None) -> Outcome:
    return Outcome(OutcomeKind.ERRORED, failure=failure, reason=Reason.RESULT_NOT_SERIALIZABLE)


def _unplanned(finished: Attempt, error: AdvancementFailed) -> Attempt:
    """Nothing can be planned from it: it is tried again, then as a failure, and in the end its run is given up.

    If it is another run that cannot be planned, the parent of this one, nothing is wrong with the step.
    """
    left, another = error.spend(), error.run_id != finished.claim.run_id
    if left or another or finished.outcome.kind is not OutcomeKind.SUCCEEDED:
        return finished
    failure = Failure.of(error.__cause__ or error)
    outcome = Outcome(OutcomeKind.ERRORED, failure=failure, reason=Reason.ADVANCEMENT_FAILED)
    return finished._replace(outcome=outcome)
