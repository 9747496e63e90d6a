"""An app that has tasks to fail and to succeed with."""

import pytest

from penstock import Penstock
from tests.conformance.operate.helpers import declare_tasks


@pytest.fixture
def app(app: Penstock) -> Penstock:
    declare_tasks(app)
    return app
