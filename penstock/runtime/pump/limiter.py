"""Limits in a worker: which of its claims they concern, and which workers are woken when there is room again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.database.transaction import Transaction
from penstock.errors import DefinitionError
from penstock.queue import settle as queue_settle
from penstock.queue.jobs import Attempt, Claim, Follow
from penstock.queue.limits import admission
from penstock.queue.limits.admission import ClaimDemands
from penstock.queue.wakeups import Wakeups, ready
from penstock.values.limits import TaskLimits
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind, Reason


class Limiter:
    """Admits the claims that their limits allow, before the dispatcher gets them."""

    def __init__(
        self,
        limited: Mapping[str, TaskLimits],
        process: Callable[[], str],
        wakeups: Wakeups,
        follow: Follow,
    ) -> None:
        self.limited = limited
        self.process = process
        self.wakeups = wakeups
        self.follow = follow

    def concerns(self, claims: Sequence[Claim]) -> bool:
        """True if a limit may keep some of these claims from running."""
        return bool(self.limited) and any(claim.task in self.limited for claim in claims)

    def admit(self, tx: Transaction, claims: Sequence[Claim], touched: Collection[str]) -> list[Claim]:
        """The claims that are to run; the others wait. `touched`: keys of claims that have just ended."""
        free, wanted = self._sorted_out(claims)
        held, unwanted = admission.still_held(tx, wanted)
        if unwanted:
            self._cancel(tx, unwanted)
        found = admission.admit(tx, held, touched)
        kept = {claim.job_id: claim for claim in free} | found.admitted
        running = [kept[claim.job_id] for claim in claims if claim.job_id in kept]
        self.wakeups.notify_on_commit(tx, [ready(queue, tier) for queue, tier in sorted(set(found.lanes))])
        if found.needs_sweep:
            tx.leave_chores()
        return running

    def _sorted_out(self, claims: Sequence[Claim]) -> tuple[list[Claim], list[ClaimDemands]]:
        """Separate claims without limits from the others with their demands.

        A claim whose key function fails gets that error.
        """
        free: list[Claim] = []
        wanted: list[ClaimDemands] = []
        for claim in claims:
            limits = self.limited.get(claim.task)
            if limits is None:
                free.append(claim)
                continue
            try:
                wanted.append(ClaimDemands(claim, limits.demands(claim.payload, claim.call)))
            except DefinitionError as error:
                free.append(claim._replace(fault=error))
        return free, wanted

    def _cancel(self, tx: Transaction, claims: Sequence[Claim]) -> None:
        """End jobs that are to be cancelled and have not begun: they need not wait for their turn first."""
        cancelled = Outcome(OutcomeKind.CANCELLED, reason=Reason.CANCELLED)
        attempts = [Attempt(claim, cancelled, began=False) for claim in claims]
        queue_settle.settle(tx, attempts, self.process(), (), self.follow)
