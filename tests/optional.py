"""Libraries that only some tests of a module need: a test that uses one is skipped where it is not installed."""

from typing import Any

import pytest


class Optional:
    """A module that is imported when a test asks it for something."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        found = pytest.importorskip(self.name, reason=f"{self.name} is not installed")
        return getattr(found, attribute)


asyncpg = Optional("asyncpg")
