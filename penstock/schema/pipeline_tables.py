"""Tables of runs: what stands beside the jobs when they are steps of something larger."""

from __future__ import annotations

from sqlalchemy import MetaData


def define(metadata: MetaData, prefix: str) -> None:
    """Add the tables of pipelines."""
