"""A worker that does everything in random order: claims some, runs some, settles some of them together."""

from __future__ import annotations

from random import Random

from penstock import Penstock
from penstock.database.transaction import Transaction
from penstock.handler_environment import HandlerEnvironment
from penstock.queue.jobs import Attempt, Claim
from penstock.runtime.executors.job_work import JobWork
from penstock.runtime.liveness.process_row import Identity
from penstock.runtime.pump.job_source import JobSource
from penstock.runtime.pump.lanes import Lanes


class RandomWorker:
    """Works until there is nothing left to do."""

    def __init__(self, app: Penstock, seed: int) -> None:
        app.prepare()
        self.app = app
        self.random = Random(seed)
        self.identity = Identity(app.database, app.events, "all")
        self.identity.register()
        limits = (app.settings.payload_limit, app.settings.expand_limit)
        self.around = HandlerEnvironment(app.database, self.identity.id, app.follow, *limits, lambda *_: None)
        lanes = Lanes(None, 0.0, uses_floor=False)
        self.source = JobSource(
            lambda: self.identity.id,
            lambda: app.task_names,
            lanes,
            app.wakeups,
            app.events,
            app.follow,
            app.prepare_claimed_steps,
            lookup=app.run_lookup,
        )
        self.held: list[Claim] = []

    def run(self) -> None:
        while self.turn():
            pass

    def turn(self) -> bool:
        """Settle and claim in one transaction, as a pump does; False when nothing is left."""
        self.random.shuffle(self.held)
        some = self.random.randint(1, 6)
        done, self.held = self.held[:some], self.held[some:]
        finished = [self.execute(claim) for claim in done]
        limit = self.random.choice([0, 1, 1, 3, 10])
        if not finished and not self.held:
            limit = 5
        claims = self.app.database.in_transaction(self.settle_and_claim, finished, limit)
        self.source.committed()
        self.held += claims
        return bool(finished or self.held or self.app.engine.chores.turn())

    def settle_and_claim(self, tx: Transaction, finished: list[Attempt], limit: int) -> list[Claim]:
        self.source.rolled_back()
        room = self.random.choice([0, limit])
        claims = self.source.settle(tx, finished, room) if finished else []
        self.source.lanes.force_sweep()
        if len(claims) < limit:
            claims += self.source.claim(tx, limit - len(claims))
        return claims if self.source.is_complete(claims) else self.source.complete(tx, claims)

    def execute(self, claim: Claim) -> Attempt:
        work = JobWork.of(claim, self.app.find_task(claim.task))
        event = work.run_here(self.around)
        assert event is not None
        return work.outcome(event)
