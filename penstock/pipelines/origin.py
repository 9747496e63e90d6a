"""Where a run comes from: what it was given, under which key, and which run it goes on from or repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from penstock.errors import PenstockError
from penstock.pipelines import labels, reading
from penstock.pipelines.reading import RunStanding
from penstock.values.codec import decode

if TYPE_CHECKING:
    from penstock.pipelines.host import Host
    from penstock.pipelines.run import Run


class Traceable:
    """What can be asked about a run's beginning."""

    id: str
    _host: Host

    @property
    def args(self) -> dict[str, Any]:
        """What it was triggered with, by parameter; typed as the app's pipeline says, if it still takes them."""
        standing = self._stands()
        pipeline = self._host.find_pipeline(standing.pipeline)
        try:
            return pipeline.decode(standing.args) if pipeline is not None else _natural(standing.args)
        except PenstockError:
            return _natural(standing.args)

    @property
    def key(self) -> str | None:
        """The key it was triggered under."""
        return self._stands().key

    @property
    def labels(self) -> list[str]:
        """The labels it was triggered with."""
        self._host.prepare()
        return self._host.database.read(labels.of_run, self.id)

    @property
    def description(self) -> str:
        """What the app says that its pipeline is for; empty if it says nothing."""
        pipeline = self._host.find_pipeline(self._stands().pipeline)
        return "" if pipeline is None else pipeline.description

    @property
    def revived_from(self) -> Run | None:
        """The run whose finished work this one keeps."""
        return self._other(self._stands().revived_from)

    @property
    def rerun_of(self) -> Run | None:
        """The run of which this one is a repetition."""
        return self._other(self._stands().rerun_of)

    @property
    def parent(self) -> Run | None:
        """The run of which this one is a step."""
        return self._other(self._stands().parent_run)

    def _other(self, id: str | None) -> Run | None:
        return None if id is None else self._host.run(id)

    def _stands(self) -> RunStanding:
        self._host.prepare()
        found = self._host.database.read(reading.standings, [self.id]).get(self.id)
        if found is None:
            raise PenstockError(f"there is no run {self.id}; it may have been pruned")
        return found


def _natural(text: str) -> dict[str, Any]:
    return cast("dict[str, Any]", decode(text))
