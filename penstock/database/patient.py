"""psycopg's connection, which can be told how long to wait for an answer.

The server ends every statement of ours in time. But a proxy that acknowledges everything and passes nothing on is
silent for ever, and so would be whoever waits there. psycopg's cursors know no such limit.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen


class Patient(psycopg.Connection[Any]):
    """Whoever is to wait no longer than so says it here; whoever uses the connection next, anew."""

    patience: float | None = None
    """None: for as long as it takes. What users execute in their own transactions is theirs to limit."""

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        if self.patience is None:
            return super().wait(gen, *args, **kwargs)
        return super().wait(self._heard(gen, self.patience), *args, **kwargs)

    def _heard(self, gen: PQGen[RV], patience: float) -> PQGen[RV]:
        """The same steps, as long as something comes. While nothing does, psycopg asks every now and then."""
        last = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    last = time.monotonic()
                elif time.monotonic() - last >= patience:
                    self.close()  # what comes next on it belongs to nobody
                    raise psycopg.OperationalError(f"no answer from the database for {patience:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            found: RV = end.value
            return found
