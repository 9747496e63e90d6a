from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from penstock import Penstock
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.cloud import Cloud

Hands = Callable[..., ManualReconciler]


@pytest.fixture
def cloud(app: Penstock) -> Cloud:
    return Cloud(app)


@pytest.fixture
def other(make_app: Callable[..., Penstock], cloud: Cloud) -> Penstock:
    """Another process, as far as the database can tell."""
    return make_app()


@pytest.fixture
def hand(app: Penstock) -> Iterator[Hands]:
    """`hand(reconciler)` or `hand(reconciler, other_app)`: a process's share in a reconciler, moved by the test."""
    with ExitStack() as stack:
        yield lambda reconciler, on=app: stack.enter_context(ManualReconciler(on, reconciler))
