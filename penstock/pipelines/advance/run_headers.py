"""Headers of runs: texts that were stored when a run was triggered, for the middleware around each of its steps.

They are kept with the values of the run's context, under a key that its users do not see. A run without headers of its
own has those of the run that started it, or that it was revived from; a re-run gets a copy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.run_context import HEADERS
from penstock.values.fork_safety import register_reset_after_fork
from penstock.values.ids import read_id
from penstock.values.typed_json.json_text import dumps, loads

FIND = """
SELECT r.parent_run_id, r.revived_from, (SELECT t.value FROM {tuples} t WHERE t.run_id = r.id AND t.tuple_key = :key)
FROM {runs} r WHERE r.id = :run
"""
GENERATIONS = 50
"""So many runs are looked at: a child has a parent, and that may have one."""
REMEMBERED = 10_000


def write(tx: Transaction, headers: Sequence[tuple[str, Mapping[str, str]]]) -> None:
    """Write the headers of new runs, given as (run, headers)."""
    rows = [{"run_id": run, "tuple_key": HEADERS, "value": dumps(dict(found))} for run, found in headers]
    tx.insert("tuples", rows, set_at="{now}")


def find(tx: Transaction, run: str) -> Mapping[str, str]:
    """The headers of a run, or of the nearest run before it that has some."""
    for _ in range(GENERATIONS):
        row = tx.row(FIND, run=run, key=HEADERS)
        if row is None:
            break
        parent, revived_from, text = row
        if text is not None:
            found: Any = loads(text)
            return dict(found)
        before = parent or revived_from
        if before is None:
            break
        run = read_id(before)
    return {}


class RunHeaders:
    """Reads the headers of runs and remembers them: they never change."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.reset_after_fork()
        register_reset_after_fork(self)

    def reset_after_fork(self) -> None:
        self._known: OrderedDict[str, Mapping[str, str]] = OrderedDict()

    def known(self, run: str) -> Mapping[str, str] | None:
        return self._known.get(run)

    def read(self, run: str) -> Mapping[str, str]:
        found = self._known[run] = self.database.read(find, run)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found
