"""What pipelines and their runs need of the app that they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.pipelines.engine import Host as EngineHost

if TYPE_CHECKING:
    from penstock.pipelines.engine import Engine
    from penstock.pipelines.pipeline import Pipeline
    from penstock.pipelines.run import Run


class Host(EngineHost, Protocol):
    """An app, seen from a pipeline or a run."""

    @property
    def engine(self) -> Engine: ...

    def declare_pipeline(self, pipeline: Pipeline) -> None: ...

    def find_pipeline(self, name: str) -> Pipeline | None: ...

    def as_pipeline(self, target: Any) -> Pipeline: ...

    def run(self, id: str) -> Run: ...
