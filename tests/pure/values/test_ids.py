"""values/ids: Ids: valid, unique, ascending; tokens: random and positive."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.values import ids
from penstock.values.ids import checked_id, new_id, new_ids, new_token


def test_an_id_is_a_canonical_uuid_of_version_7() -> None:
    made = new_id()
    parsed = UUID(made)
    assert str(parsed) == made
    assert parsed.version == 7
    assert parsed.variant == "specified in RFC 4122"


def test_an_id_carries_the_time_it_was_made() -> None:
    before = time.time_ns() // 1_000_000
    milliseconds = UUID(new_id()).int >> 80
    # Other tests may have made so many ids that the sequence is a little ahead.
    assert before - 1 <= milliseconds <= time.time_ns() // 1_000_000 + 1000


@given(st.lists(st.integers(0, 300), min_size=1, max_size=20))
def test_ids_ascend_strictly_over_batches_of_any_size(sizes: list[int]) -> None:
    made = [made for size in sizes for made in [*new_ids(size), new_id()]]
    assert made == sorted(set(made))
    assert all(UUID(each).version == 7 for each in made)


def test_ids_ascend_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([5_000_000_000, 4_000_000_000, 1_000_000, 5_001_000_000])
    monkeypatch.setattr(ids, "_sequence", ids._Sequence())
    monkeypatch.setattr("penstock.values.ids.time.time_ns", lambda: next(clock))
    made = [new_id(), new_id(), new_id(), new_id()]
    assert made == sorted(set(made))


def test_a_counter_that_would_run_out_moves_on_to_the_next_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ids, "_sequence", ids._Sequence())
    monkeypatch.setattr("penstock.values.ids.time.time_ns", lambda: 7_000_000)
    first = new_id()
    ids._sequence._next = ids._COUNTER_END - 2
    made = [first, *new_ids(2), *new_ids(3)]
    assert made == sorted(set(made))
    assert [UUID(each).int >> 80 for each in made] == [7, 7, 7, 8, 8, 8]


def test_threads_never_get_the_same_id_and_each_sees_its_own_ascend() -> None:
    def work(_: int) -> list[str]:
        return [made for _ in range(200) for made in [*new_ids(5), new_id()]]

    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(work, range(16)))
    assert all(batch == sorted(batch) for batch in batches)
    everything = [made for batch in batches for made in batch]
    assert len(set(everything)) == len(everything)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_makes_other_ids_than_its_parent() -> None:
    new_id()
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sending, "\n".join(new_ids(50)).encode())
        os._exit(0)
    mine = new_ids(50)
    os.close(sending)
    with os.fdopen(receiving) as pipe:
        theirs = pipe.read().split()
    os.waitpid(child, 0)
    assert len(theirs) == 50
    assert not set(mine) & set(theirs)
    # Not merely disjoint: the random part was drawn anew.
    assert {made[15:23] for made in mine} != {made[15:23] for made in theirs}


def test_tokens_are_distinct_positive_and_fit_a_signed_bigint() -> None:
    tokens = [new_token() for _ in range(10_000)]
    assert len(set(tokens)) == len(tokens)
    assert all(0 < token < 2**63 for token in tokens)
    assert any(token > 2**62 for token in tokens)


def test_an_id_written_down_is_read_back_and_anything_else_refused() -> None:
    id = new_id()
    assert checked_id(id.upper()) == checked_id(UUID(id)) == id
    for wrong in ("nope", id[:8], "", None, 5):
        with pytest.raises(PenstockError, match="is not an id"):
            checked_id(wrong)


def test_a_chosen_id_is_given_to_the_first_thing_that_is_made() -> None:
    chosen = ids.new_id()
    with ids.choosing(chosen):
        assert ids.id_to_make() == chosen
        assert ids.id_to_make() != chosen
        with ids.choosing(None):
            assert ids.id_to_make() != chosen
    assert ids.id_to_make() != chosen
