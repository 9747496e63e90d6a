"""A run and its definition: which one it has, how that differs from today's, and moving to today's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.database.transaction import Transaction
from penstock.errors import PenstockError
from penstock.pipelines import migrating, reading
from penstock.pipelines.current import current
from penstock.pipelines.definition import Definition
from penstock.pipelines.difference import Difference, compare
from penstock.pipelines.runs import wiring_for

if TYPE_CHECKING:
    from penstock.pipelines.host import Host


class Redefinable:
    """What can be asked and done about a run's definition."""

    id: str
    _host: Host

    @property
    def definition(self) -> str:
        """The hash of the definition that the run goes by."""
        return self._own_definition().hash

    def diff(self) -> Difference:
        """What is different in the app's definition of this pipeline now; false if nothing is."""
        own = self._own_definition()
        return compare(own, current(self._host, own.name).definition)

    async def diff_async(self) -> Difference:
        return await self._host.doors.run(self.diff)

    def migrate(self) -> bool:
        """Have a run that is under way go on with the app's definition of now. False: it does already.

        What the run has already must be the same in both, or `DefinitionsDiffer` says what is not, and nothing is
        changed.
        """
        host = self._host
        wanted = current(host, self._own_definition().name)
        tried: list[bool] = []

        def move(tx: Transaction) -> bool:
            moved = migrating.migrate(host.engine.desk, tx, self.id, wanted)
            # An earlier try may have been committed, and only its answer lost.
            tried.append(moved)
            return any(tried)

        return host.database.in_transaction(move)

    async def migrate_async(self) -> bool:
        return await self._host.doors.run(self.migrate)

    def _own_definition(self) -> Definition:
        return self._host.database.read(self._read_definition)

    def _read_definition(self, tx: Transaction) -> Definition:
        standing = reading.standings(tx, [self.id]).get(self.id)
        if standing is None:
            raise PenstockError(f"there is no run {self.id}; it may have been pruned")
        return wiring_for(self._host.engine.desk, tx, standing.definition).definition
