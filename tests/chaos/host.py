"""All that a host runs: `penstock worker tests.chaos.host:app`. It sees no process of another host."""

import os
from pathlib import Path

from penstock.runtime.liveness import host_identity
from tests.chaos import flows, terms, yard
from tests.chaos.shop import app

host_identity.SHARED_MEMORY = Path(os.environ[terms.SHARED_MEMORY])

__all__ = ["app", "flows", "yard"]
