"""All that a host runs: `penstock worker tests.chaos.host:app`. It sees no process of another host."""

import os
from pathlib import Path

from penstock.runtime import dwelling
from tests.chaos import flows, terms, yard
from tests.chaos.shop import app

dwelling.HEARTH = Path(os.environ[terms.HEARTH])

__all__ = ["app", "flows", "yard"]
