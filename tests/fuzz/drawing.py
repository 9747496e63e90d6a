"""Draws hostile cases beyond the known ones, a few fresh ones at each run."""

from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.hostile import BASES, BEHAVIOUR, ERRORS, METHODS, OF_CLASSES, PROPERTIES, VALUES, Case

T = TypeVar("T")


def cases() -> st.SearchStrategy[Case]:
    """The strategy for cases of both kinds."""
    behaviour = st.sampled_from(sorted(BEHAVIOUR))
    hostile = st.dictionaries(st.sampled_from(METHODS + PROPERTIES), behaviour, max_size=3)
    of_class = st.dictionaries(st.sampled_from(OF_CLASSES), behaviour, max_size=2)
    single = st.tuples(st.sampled_from(sorted(ERRORS)), hostile, of_class).map(list)
    error = st.one_of(
        single,
        single,
        st.tuples(st.just("group"), single, st.integers(1, 2_000)).map(list),
        st.tuples(st.just("crowd"), single, st.integers(1, 200)).map(list),
        st.tuples(st.just("chain"), single, st.integers(1, 1_500)).map(list),
        st.just(["circle"]),
    )
    value = st.one_of(
        st.sampled_from(sorted(VALUES)).map(lambda name: [name]),
        st.tuples(st.sampled_from(sorted(BASES)), hostile).map(list),
    )
    return st.one_of(
        st.tuples(st.just("raise"), error).map(list), st.tuples(st.just("return"), value).map(list)
    )


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Before anything runs: others use the same source of random numbers. The first that are drawn are the plainest."""
    found: list[T] = []

    @settings(
        max_examples=20, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(st.lists(strategy, min_size=count, max_size=count))
    def draw(batch: list[T]) -> None:
        found[:] = batch

    draw()
    return found
