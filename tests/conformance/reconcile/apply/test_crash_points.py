"""reconcile/claim, reconcile/apply: a process that dies between any two statements: what it was doing is done once,
by it or by its successor.
"""

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Children, Penstock
from penstock.reconcile.columns import EPOCH
from penstock.telemetry import fault_points
from penstock.telemetry.fault_points import SimulatedCrash
from penstock.testing import travel
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.cloud import Cloud, Fleet, Instance, Note, declare

Hands = Callable[..., ManualReconciler]
STAGES = {"claim_rows": 8, "renew_rows": 4, "apply_rows": 8}
POINTS = [
    f"{stage}.{point}"
    for stage, statements in STAGES.items()
    for point in [*range(1, statements + 1), "commit", "committed"]
]


def count(item: Any) -> dict[str, Any]:
    item.insert(Note(text=f"visit {item.row.size + 1}"))
    for child in item.children:
        item.update(child, load=child.load + 1)
    return {"size": item.row.size + 1}


@pytest.fixture
def hands(app: Penstock, cloud: Cloud, hand: Hands) -> Callable[[], ManualReconciler]:
    cloud.add(Fleet, {"id": 1})
    cloud.add(Instance, *[{"id": number, "fleet_id": 1} for number in (1, 2)])
    locks = [Children(Instance, Instance.fleet_id == Fleet.id)]
    reconciler = declare(app, Fleet, count, locks=locks, lease=30, every=3600)
    return lambda: hand(reconciler)


def test_a_crash_at_any_point(app: Penstock, cloud: Cloud, hands: Callable[[], ManualReconciler]) -> None:
    reached: set[str] = set()
    for visits, point in enumerate(POINTS, 1):
        cloud.set(Fleet, 1, next_process_at=EPOCH)
        if _crashes(hands(), point):
            reached.add(point)
        travel(app, 31)
        successor = hands()
        while successor.visit():
            pass
        _is_consistent(cloud, visits, point)
    assert {point for point in POINTS if point.endswith((".1", ".2", "commit", "committed"))} <= reached
    assert len(reached) > 14


def _crashes(victim: ManualReconciler, point: str) -> bool:
    with fault_points.watching(fault_points.crasher(f"{point}:raise")):
        try:
            for item in victim.take():
                victim.renew(item)
                victim.finish(victim.work(item))
        except SimulatedCrash:
            return True
    return False


def _is_consistent(cloud: Cloud, visits: int, point: str) -> None:
    fleet = cloud.get(Fleet, 1)
    loads = {row.load for row in cloud.all(Instance)}
    assert (fleet.size, loads, len(cloud.all(Note))) == (visits, {visits}, visits), point
    assert (cloud.locked(Fleet), cloud.locked(Instance)) == ([], []), point
