"""The producer: `python -m tests.chaos.produce PACE`. Steady load, whatever the database does.

It says in its ledger what it is about to do and what was accepted. Between the two it repeats, for the answer may
have been lost; a key makes that safe. A producer that was killed goes on where its predecessor stopped, and repeats
what that one had begun.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from penstock.errors import DatabaseUnavailable, LockTimeout
from tests.chaos import host, ledger, plan, shop, terms, yard
from tests.chaos.errands import Errands

PAUSE = 0.1


class Producer:
    def __init__(self, pace: float, seed: int) -> None:
        self.pace = pace
        self.seed = seed
        self.stopping = False
        self.errands = Errands(Random(seed))
        signal.signal(signal.SIGTERM, lambda *_: self.stop())

    def stop(self) -> None:
        self.stopping = True

    def run(self) -> None:
        self._patiently(-1, self._prepare)
        begun = self._remember()
        shop.ledger.write("ready")
        due = time.monotonic()
        number = max(begun, default=-1) + 1
        unsure = sorted(number for number, accepted in begun.items() if not accepted)
        while not self.stopping:
            self._do(unsure.pop(0) if unsure else number)
            number += not unsure
            self._patiently(-1, self.errands.give_signals)
            due = max(due + 1 / self.pace, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))

    def _prepare(self) -> None:
        host.app.prepare()
        yard.Base.metadata.create_all(host.app.database.engine)
        shop.metadata.create_all(host.app.database.engine)
        for name, said in plan.SCHEDULES.items():
            target = (host.app.pipelines if name in plan.ROUNDS_OF else host.app.tasks)[name]
            host.app.schedules.create(target, name=name, **said)
            shop.ledger.write("scheduled", name=name)

    def _remember(self) -> dict[int, bool]:
        """Every operation ever begun, and whether it was accepted."""
        begun: dict[int, bool] = {}
        for entry in ledger.read(Path(os.environ[terms.LEDGER])):
            if entry["what"] == "intend":
                begun.setdefault(entry["number"], False)
            if entry["what"] == "accepted":
                begun[entry["number"]] = True
                if entry["kind"] == "counter":
                    self.errands.counters.append(entry["number"])
        return begun

    def _do(self, number: int) -> None:
        operation = plan.operation(self.seed, number)
        shop.ledger.write("intend", number=number, kind=operation.kind)
        ids: list[str] = []
        if self._patiently(number, lambda: ids.extend(self.errands.run(operation))):
            shop.ledger.write("accepted", number=number, kind=operation.kind, ids=ids)

    def _patiently(self, number: int, errand: Callable[[], None]) -> bool:
        """Again and again, as long as it fails for a reason that passes. False: stopped on the way."""
        while not self.stopping:
            try:
                errand()
            except Exception as error:
                passing = isinstance(error, DatabaseUnavailable | LockTimeout) or host.app.database.is_outage(
                    error
                )
                shop.ledger.write("trouble", number=number, error=repr(error)[:300], passing=passing)
                if not passing:
                    return False
                time.sleep(PAUSE)
            else:
                return True
        return False


if __name__ == "__main__":
    Producer(float(sys.argv[1]), int(os.environ[terms.SEED])).run()
