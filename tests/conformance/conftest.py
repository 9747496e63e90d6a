"""What several files here share."""

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

MODULE = "tests.conformance.shop"


@pytest.fixture
def shop(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, with its app on the test's database, here and in every process that imports it."""
    monkeypatch.setenv("PENSTOCK_TEST_SHOP_URL", database_url)
    sys.modules.pop(MODULE, None)
    module: ModuleType = importlib.import_module(MODULE)
    yield module
    module.app.close()
    sys.modules.pop(MODULE, None)
