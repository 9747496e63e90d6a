"""An app that has tasks to fail and to succeed with."""

import pytest

from penstock import Penstock
from tests.conformance.operate.helpers import declare_tasks


@pytest.fixture(autouse=True)
def tasks(app: Penstock) -> None:
    declare_tasks(app)
