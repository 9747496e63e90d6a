"""Imports modules at their first use.

A worker that has no reconcilers never needs SQLAlchemy, and one on PostgreSQL no driver for MySQL: that is a third of
its memory, and half of the time it takes to start.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazy:
    """Stands for a module until one of its names is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)

    def __repr__(self) -> str:
        return f"<{self._name}, when it is wanted>"
