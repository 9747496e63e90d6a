"""All that a host runs: `penstock worker tests.chaos.host:app`."""

from tests.chaos import flows, yard
from tests.chaos.shop import app

__all__ = ["app", "flows", "yard"]
