"""One stage for all schedules of a module: machines and schema are made once."""

from collections.abc import Iterator

import pytest

from tests.simulation.schedule import Stage, theatre


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with theatre() as made:
        yield made
