"""queue/wakeup_targets: as many workers are woken as the work needs, of those that can do it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queue import wakeup_targets
from penstock.queue.unknown_tasks import marks
from penstock.queue.wakeup_targets import Fleet, Needs
from penstock.values.typed_json.json_text import dumps

Row = tuple[object, ...]
NOTE = Needs(frozenset(marks(["note"])))


def row(
    id: str, queues: str = "all", tasks: Sequence[str] = ("note",), host: str = "h", **more: object
) -> Row:
    told = {"ear": f"ear-{id}", "queues": queues, "concurrency": 10, "knows": marks(tasks), **more}
    return (id, host, "all", dumps(told))


def fleet_of(*rows: Row) -> Fleet:
    found = Fleet(salt=1)
    found.learn(rows)
    return found


def names(found: Fleet, queue: str = "default", needs: Needs = NOTE, here: Sequence[str] = ()) -> list[str]:
    named = found.name_for(queue, needs, here)
    assert named is not None
    return [member.id for member in named.now]


@pytest.fixture
def many() -> Fleet:
    return fleet_of(*(row(str(number)) for number in range(64)))


def test_one_job_needs_one_and_another_in_case_that_one_is_gone(many: Fleet) -> None:
    named = many.name_for("default", NOTE, ())
    assert named is not None
    assert len(named.now) == len(named.later) == 1
    assert named.now != named.later


def test_many_jobs_need_as_many_as_have_room_for_them(many: Fleet) -> None:
    assert len(names(many, needs=NOTE._replace(jobs=25))) == 3
    assert many.name_for("default", NOTE._replace(jobs=1000), ()) is None, "all: then they are told at once"


def test_the_same_are_named_as_long_as_they_are_enough(many: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    fast = set[str]()
    for _ in range(10):
        fast |= set(names(many))
        now += 0.01
    assert len(fast) == 10, "those that come at once go to different ones"
    slow = set[str]()
    for _ in range(10):
        now += 2
        slow |= set(names(many))
    assert len(slow) == 1, "and the others rest"


def test_each_teller_has_an_order_of_its_own() -> None:
    rows = [row(str(number)) for number in range(64)]
    first = set[str]()
    for salt in range(20):
        teller = Fleet(salt=salt)
        teller.learn(rows)
        first |= set(names(teller))
    assert len(first) > 5


def test_only_those_are_named_that_serve_the_queue_and_know_the_task() -> None:
    found = fleet_of(
        row("a", "mail"), row("b", "default", tasks=["other"]), row("c", "default:3"), row("d", "x,mail")
    )
    assert names(found) == ["c"]
    assert set(names(found, "mail", NOTE._replace(jobs=20))) == {"a", "d"}
    assert found.name_for("nowhere", NOTE, ()) is None
    assert found.name_for("default", Needs(frozenset(marks(["unknown"]))), ()) is None
    assert found.name_for("default", Needs(), ()) is None, (
        "of two workers that know different tasks, none is sure to know this one"
    )
    assert names(found, "x", Needs()) == ["d"]


def test_a_worker_of_our_own_hears_of_it_anyway() -> None:
    found = fleet_of(row("a"), row("b"))
    named = found.name_for("default", NOTE, ["ear-a"])
    assert named is not None
    assert [member.id for member in named.now] == ["b"]
    assert not named.later
    assert names(fleet_of(row("a")), here=["ear-a"]) == []


def test_the_other_is_on_another_host_if_there_is_one() -> None:
    found = fleet_of(*(row(str(number), host="one") for number in range(9)), row("far", host="two"))
    for _ in range(5):
        named = found.name_for("default", NOTE, ())
        assert named is not None
        assert {member.host for member in (*named.now, *named.later)} == {"one", "two"}


def test_those_who_do_not_listen_are_not_named_and_those_who_do_not_say_are_told_with_all() -> None:
    found = fleet_of(row("a", ear=None), row("b"))
    assert names(found) == ["b"]
    assert (
        fleet_of(row("b"), ("old", "h", "all", dumps({"queues": "all"}))).name_for("default", NOTE, ())
        is None
    )
    found.forget()
    assert found.name_for("default", NOTE, ()) is None
    assert not found.stale


def test_two_do_the_housekeeping() -> None:
    found = fleet_of(*(row(str(number)) for number in range(9)))
    named = found.name_two()
    assert named is not None
    assert len(named.now) == 2
    assert fleet_of().name_two() is None


@given(
    st.lists(
        st.tuples(
            st.text(),
            st.text(),
            st.text(),
            st.one_of(
                st.text(),
                st.recursive(
                    st.none() | st.integers() | st.text(),
                    lambda inner: st.dictionaries(
                        st.sampled_from(["ear", "queues", "knows", "concurrency"]), inner
                    ),
                ).map(dumps),
            ),
        )
    )
)
def test_rows_may_say_anything(rows: list[tuple[str, str, str, str]]) -> None:
    found = Fleet()
    found.learn(rows)
    found.name_for("default", NOTE, ())
    found.name_two()
    assert not found.stale
    assert wakeup_targets.FRESH > 0
