"""reconcile/related_rows: Related rows: held all together, given up all together, fairly shared, and never stuck.

The comments name what went wrong in the system that this replaces.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from penstock import Children, Penstock, Shared
from penstock.errors import DefinitionError
from penstock.reconcile.events import LocksSwept, RelatedBusy
from penstock.reconcile.reconciler import Reconciler
from penstock.runtime.reconcilers.row_services import LeaseKeeper, Sweeper
from penstock.testing import travel
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.apply.test_apply import heard
from tests.conformance.reconcile.claim.test_claims import now
from tests.conformance.reconcile.claim.test_leases import age
from tests.conformance.reconcile.cloud import Cloud, Fleet, Instance, Note, Task, declare, ids

Hands = Callable[..., ManualReconciler]
ITS_INSTANCES = Instance.fleet_id == Fleet.id
ITS_INSTANCE = Instance.id == Task.instance_id


@pytest.fixture
def fleet(cloud: Cloud) -> None:
    cloud.add(Fleet, {"id": 1})
    cloud.add(Instance, *[{"id": number, "fleet_id": 1} for number in (1, 2, 3)], {"id": 9, "fleet_id": None})


@pytest.fixture
def fleets(app: Penstock) -> Reconciler:
    return declare(app, Fleet, locks=[Children(Instance, ITS_INSTANCES)], every=60, lease=30, name="fleets")


@pytest.fixture
def instances(app: Penstock) -> Reconciler:
    return declare(app, Instance, every=0, lease=30, name="instances")


@pytest.fixture
def tasks(app: Penstock) -> Reconciler:
    return declare(app, Task, locks=[Shared(Instance, ITS_INSTANCE)], every=60, lease=30, name="tasks")


@pytest.mark.usefixtures("fleet")
class TestChildren:
    def test_a_parent_holds_all_its_children_under_one_token(
        self, cloud: Cloud, hand: Hands, fleets: Reconciler
    ) -> None:
        mine = hand(fleets)
        (item,) = mine.take()
        assert sorted(child.id for child in item.children) == [1, 2, 3]
        rows = [row for row in cloud.all(Instance) if row.fleet_id == 1]
        assert {(row.lock_token, row.lock_owner) for row in rows} == {(item.token, "fleets:1")}
        assert {row.lock_expires_at for row in rows} == {cloud.get(Fleet, 1).lock_expires_at}
        assert cloud.get(Instance, 9).lock_token is None
        for child in item.children:
            item.update(child, status="busy")
        mine.finish(mine.end(item, {"size": 3}))
        assert [row.status for row in cloud.all(Instance)] == ["busy", "busy", "busy", "idle"]
        assert (cloud.get(Fleet, 1).size, cloud.locked(Fleet), cloud.locked(Instance)) == (3, [], [])

    def test_while_one_child_is_busy_none_is_taken(
        self, app: Penstock, cloud: Cloud, hand: Hands, fleets: Reconciler, instances: Reconciler
    ) -> None:
        busy = heard(app, RelatedBusy)
        mine, children = hand(fleets), hand(instances)
        (child,) = children.take(1)
        assert mine.take() == []
        assert [event.row for event in busy] == ["1"]
        assert (cloud.locked(Fleet), cloud.locked(Instance)) == ([], [child.id]), (
            "no visit holds a row that it cannot use"
        )
        children.give_back(child)
        with travel(app, 2):
            assert len(mine.take()) == 1

    def test_a_parent_gets_its_turn_against_children_that_are_always_busy(
        self, app: Penstock, hand: Hands, fleets: Reconciler, instances: Reconciler
    ) -> None:
        """Children come back at once and are taken at once, one always held while the other is let go."""
        mine, children = hand(fleets), hand(instances)
        held = children.take(4)
        for _ in range(10):
            first, *held = held
            children.finish(children.end(first))
            held += children.take(4 - len(held))
            travel(app, 2)
            if mine.take():
                return
        pytest.fail("the parent never got its children")

    def test_freed_children_are_left_to_the_parent_that_announced_itself(
        self, cloud: Cloud, hand: Hands, fleets: Reconciler, instances: Reconciler
    ) -> None:
        mine, children = hand(fleets), hand(instances)
        held = children.take(2)
        assert mine.take() == []
        children.finish(*[children.end(item) for item in held])
        assert ids(children.take()) == [9], "only the one that the parent does not want"
        mine.source.heard({"rows"})
        (item,) = mine.take()
        mine.finish(mine.end(item))
        assert sorted(ids(children.take())) == [1, 2, 3], "and then it is their turn again"

    def test_a_childs_own_expired_lock_is_recovered_although_the_parent_waits(
        self, app: Penstock, hand: Hands, fleets: Reconciler, instances: Reconciler
    ) -> None:
        """#3704: a child that skipped everything its parent wanted could not be recovered at all."""
        mine = hand(fleets)
        (dead,) = hand(instances).take(1)
        assert mine.take() == []
        with travel(app, 31):
            assert mine.take() == [], "not the parent's to recover"
            (item,) = [item for item in hand(instances).take() if item.id == dead.id]
        assert item.recovered

    def test_a_stale_child_is_recovered_whatever_its_parent_is(
        self, app: Penstock, cloud: Cloud, hand: Hands, fleets: Reconciler, instances: Reconciler
    ) -> None:
        """#3741: a filter on the parent's state left out the stale children of those that were being stopped."""
        hand(fleets).take()
        cloud.set(Fleet, 1, status="terminating")
        with travel(app, 31 + 31):
            assert {item.id for item in hand(instances).take() if item.recovered} == {1, 2, 3}

    def test_only_what_is_needed_is_locked(self, app: Penstock, cloud: Cloud, hand: Hands) -> None:
        """#3580: a parent that locks children it does not need is in the way of all others."""
        lock = Children(Instance, ITS_INSTANCES, when=lambda fleet: fleet.status == "draining")
        mine = hand(declare(app, Fleet, locks=[lock], every=0, name="draining"))
        (item,) = mine.take()
        assert (item.children, cloud.locked(Instance)) == ([], [])
        mine.finish(mine.end(item, {"status": "draining"}))
        (item,) = mine.take()
        assert len(item.children) == 3

    def test_a_parent_that_waits_in_vain_blocks_no_other_row(
        self, app: Penstock, cloud: Cloud, hand: Hands, fleets: Reconciler, instances: Reconciler
    ) -> None:
        """#3886: a condition that never passes kept the lock's owner for ever, and nothing else could be done."""
        mine, children = hand(fleets), hand(instances)
        (stuck,) = children.take(1)
        others = sorted({1, 2, 3} - {stuck.id})
        for seconds in range(0, 110, 10):
            with travel(app, seconds):
                children.renew(stuck)
                assert mine.take() == []
                assert [id for id in ids(hand(instances).take()) if id != 9] == []
        with app.lock(Fleet, 1, timeout=0.0):
            pass  # the parent itself stays free
        with travel(app, 121):
            children.renew(stuck)
            assert mine.take() == []
            free = hand(instances)
            items = [item for item in free.take() if item.id in others]
            assert sorted(ids(items)) == others, (
                "after its patience the others have as much time for themselves"
            )
            free.finish(*[free.end(item) for item in items])

    @pytest.mark.parametrize("end", ["error", "given back", "lost", "deleted"])
    def test_children_are_released_however_it_ends(
        self, app: Penstock, other: Penstock, cloud: Cloud, hand: Hands, fleets: Reconciler, end: str
    ) -> None:
        """There, an exception left the row and all its children locked until the lease ran out."""
        mine = hand(fleets)
        (item,) = mine.take()
        match end:
            case "error":
                fleets.function = _broken
                mine.finish(mine.work(item))
            case "given back":
                mine.give_back(item)
            case "lost":
                cloud.set(Fleet, 1, lock_token=1)
                mine.finish(mine.end(item))
            case "deleted":
                for child in item.children:
                    item.delete(child)
                mine.finish(mine.end(item))
                assert ids(cloud.all(Instance)) == [9]
        assert cloud.locked(Instance) == []

    def test_if_a_child_is_lost_everything_is(
        self,
        app: Penstock,
        other: Penstock,
        cloud: Cloud,
        hand: Hands,
        fleets: Reconciler,
        instances: Reconciler,
    ) -> None:
        """The lease ran out, a child was taken over, the parent itself not yet: its view of them is worth nothing."""
        mine = hand(fleets)
        (item,) = mine.take()
        with travel(other, 62):
            (taken,) = hand(declare(app, Instance, where=Instance.id == 2, name="second"), other).take()
        item.update(item.children[0], status="wrong")
        item.insert(Note(text="wrong"))
        mine.finish(mine.end(item, {"size": 3}))
        assert {row.status for row in cloud.all(Instance)} == {"idle"}
        assert (cloud.get(Fleet, 1).size, cloud.all(Note)) == (0, [])
        assert (cloud.locked(Fleet), cloud.locked(Instance)) == ([], [taken.id])
        assert len(mine.refused_visits) == 1

    def test_children_are_renewed_with_their_parent(
        self,
        app: Penstock,
        other: Penstock,
        cloud: Cloud,
        hand: Hands,
        fleets: Reconciler,
        instances: Reconciler,
    ) -> None:
        mine = hand(fleets)
        mine.take()
        age(mine, 16)
        with travel(app, 20):
            LeaseKeeper(app.database, app.events, lambda: [mine.source], lambda: "").turn()
        until = {row.lock_expires_at for row in cloud.all(Instance) if row.fleet_id == 1}
        assert until == {cloud.get(Fleet, 1).lock_expires_at}
        assert until.pop() - now(app) > timedelta(seconds=40)
        with travel(other, 45):
            assert ids(hand(instances, other).take()) == [9]

    def test_locks_die_with_their_claim_and_the_next_holder_gets_them(
        self, app: Penstock, cloud: Cloud, hand: Hands, fleets: Reconciler
    ) -> None:
        (dead,) = hand(fleets).take()
        with travel(app, 31):
            (item,) = hand(fleets).take()
        assert item.recovered
        assert {row.lock_token for row in cloud.all(Instance) if row.fleet_id == 1} == {item.token}
        assert item.token != dead.token

    def test_orphaned_locks_are_swept(
        self, app: Penstock, cloud: Cloud, hand: Hands, fleets: Reconciler, instances: Reconciler
    ) -> None:
        """There, a parent that never came back for its children left its name on them for ever."""
        swept = heard(app, LocksSwept)
        hand(fleets).take()
        cloud.set(Instance, 9, lock_owner="gone", lock_token=5, lock_expires_at=now(app))
        sweeper = Sweeper(app.database, app.events, lambda: [fleets, instances])
        sweeper.turn()
        assert swept == []
        with travel(app, 3600):
            sweeper.turn()
        assert cloud.locked(Instance) == []
        assert {(event.table, event.count) for event in swept} == {("instances", 4)}
        assert cloud.locked(Fleet) == [1], (
            "that one will be recovered by its own reconciler, and is to know it"
        )

    def test_a_parent_without_children_just_runs(self, cloud: Cloud, hand: Hands, fleets: Reconciler) -> None:
        cloud.add(Fleet, {"id": 2})
        items = {item.id: item for item in hand(fleets).take()}
        assert items[2].children == []


class TestShared:
    def test_one_at_a_time_gets_the_shared_row(
        self, app: Penstock, cloud: Cloud, hand: Hands, tasks: Reconciler
    ) -> None:
        cloud.add(Instance, {"id": 1})
        cloud.add(
            Task, *[{"id": number, "instance_id": 1} for number in (1, 2)], {"id": 3, "instance_id": None}
        )
        mine = hand(tasks)
        first, free = mine.take()
        assert (first.shared.id, free.shared) == (1, None)
        assert cloud.get(Instance, 1).lock_owner == f"tasks:{first.id}"
        first.update(first.shared, load=first.shared.load + 1)
        mine.finish(mine.end(first), mine.end(free))
        mine.source.heard({"rows"})
        (second,) = mine.take()
        assert (second.id, second.shared.load) == (3 - first.id, 1)

    def test_no_increment_is_lost(
        self, app: Penstock, other: Penstock, cloud: Cloud, hand: Hands, tasks: Reconciler
    ) -> None:
        """#4120: a lock that was let go before the commit lost a decrement."""
        cloud.add(Instance, {"id": 1})
        cloud.add(Task, *[{"id": number, "instance_id": 1} for number in range(1, 21)])

        def work(one: ManualReconciler) -> None:
            while {row.status for row in cloud.all(Task)} != {"done"}:
                one.source.heard({"rows"})
                # InnoDB may see a deadlock, as in a worker.
                for item in app.database.with_retries(lambda: one.take(5)):
                    item.update(item.shared, load=item.shared.load + 1)
                    one.finish(
                        one.end(item, {"status": "done", "next_process_at": now(app) + timedelta(days=1)})
                    )

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, [hand(tasks), hand(tasks, other)]))
        assert cloud.get(Instance, 1).load == 20

    def test_two_who_want_the_same_rows_do_not_block_each_other(
        self, app: Penstock, cloud: Cloud, hand: Hands, instances: Reconciler
    ) -> None:
        """There, two parents could each keep its announcement on a part, and nothing ordered them."""
        cloud.add(Fleet, {"id": 1}, {"id": 2})
        cloud.add(Instance, *[{"id": number, "fleet_id": 1} for number in range(1, 7)])
        everything = Children(Instance, Instance.id > Fleet.id - 10)
        one = declare(app, Fleet, where=Fleet.id == 1, locks=[everything], every=60, lease=30, name="one")
        two = declare(app, Fleet, where=Fleet.id == 2, locks=[everything], every=60, lease=30, name="two")
        hands = [hand(two), hand(one)]
        children = hand(instances)
        held = children.take(3)
        done: list[int] = []
        for _ in range(12):
            for mine in hands:
                for item in mine.take():
                    done.append(item.id)
                    mine.finish(mine.end(item, {"status": "done"}))
            if held:
                children.finish(children.end(held.pop()))
            travel(app, 2)
        assert sorted(done) == [1, 2]

    def test_a_row_is_not_held_twice_in_one_batch(self, cloud: Cloud, hand: Hands, tasks: Reconciler) -> None:
        cloud.add(Instance, {"id": 1})
        cloud.add(Task, *[{"id": number, "instance_id": 1} for number in range(1, 6)])
        assert len(hand(tasks).take()) == 1


def test_only_held_rows_can_be_changed(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    """#3471: a path that forgot to lock a related row left instances stuck."""
    cloud.add(Instance, {"id": 1})
    cloud.add(Fleet, {"id": 1})
    (item,) = hand(declare(app, Fleet)).take()
    with pytest.raises(DefinitionError, match="locks="):
        item.update(Instance(id=1), status="busy")


def test_a_table_cannot_be_locked_along_with_itself(app: Penstock) -> None:
    with pytest.raises(DefinitionError, match="its own table"):
        declare(app, Fleet, locks=[Children(Fleet, Fleet.id == Fleet.size)])


def test_a_related_model_needs_the_columns(app: Penstock) -> None:
    with pytest.raises(DefinitionError, match="Reconcilable"):
        declare(app, Fleet, locks=[Children(Note, Note.id == Fleet.id)])


def _broken(item: Any) -> None:
    raise RuntimeError("no")


@pytest.mark.usefixtures("fleet")
def test_a_handler_cannot_write_the_locks_of_related_rows(hand: Hands, fleets: Reconciler) -> None:
    (item,) = hand(fleets).take()
    with pytest.raises(DefinitionError, match="kept by Penstock"):
        item.update(item.children[0], lock_token=None)


@pytest.mark.usefixtures("fleet")
def test_rows_that_waited_are_not_remembered_for_ever(
    cloud: Cloud, hand: Hands, fleets: Reconciler, instances: Reconciler
) -> None:
    mine, children = hand(fleets), hand(instances)
    children.take()
    assert mine.take() == []
    assert mine.source._busy == {(1,)}
    mine.source.heard({"rows"})
    assert mine.take() == []
    assert mine.source._busy == {(1,)}, "still busy"
    cloud.set(Fleet, 1, lock_expires_at=now(mine.app) + timedelta(hours=1), lock_token=1)
    mine.source.heard({"rows"})
    assert mine.take() == []
    assert mine.source._busy == set(), "another visit has it"
