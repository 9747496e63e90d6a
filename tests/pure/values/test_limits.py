"""values/limits: Limits as values: what may be declared, under which key a job counts, and who of several may run."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Concurrency, Penstock, Rate
from penstock.errors import ConfigurationError, DefinitionError
from penstock.queue.jobs import Claim
from penstock.queue.limits.admission import ClaimDemands, decide
from penstock.queue.limits.slots import LimitUsage, Reservation
from penstock.values.limits import LONGEST_KEY, Demand, TaskLimits
from penstock.values.typed_json.signature import Signature


def charge(account: str, cents: int = 5, *more: int, region: str | None = None) -> None: ...


def limits(*given: Any) -> TaskLimits:
    return TaskLimits("charge", charge, Signature.of(charge, "charge"), given)


def keys(given: Any, *args: Any, **kwargs: Any) -> list[str]:
    payload = Signature.of(charge, "charge").encode_arguments(args, kwargs)
    return [demand.key for demand in limits(given).demands(payload, None)]


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "5", None, 10**9])
def test_112_a_number_that_makes_no_sense_is_refused(most: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Concurrency\(.*\): most=.*: give a whole number from 1"):
        Concurrency(most)
    with pytest.raises(ConfigurationError, match=r"Rate\(.*\): most=.*: give a whole number from 1"):
        Rate(most, per=60)


@pytest.mark.parametrize("per", [0, -1, "60", None, True, float("inf"), float("nan")])
def test_112_a_window_that_makes_no_sense_is_refused(per: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"Rate\(5, \.\.\.\): per=.*: give seconds \(or a timedelta\)"
    ):
        Rate(5, per=per)


def test_a_window_may_be_a_timedelta() -> None:
    assert Rate(5, per=timedelta(minutes=1)) == Rate(5, per=60)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", 5, "x" * 101, "a\tb"])
def test_112_a_name_that_makes_no_sense_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="name="):
        Concurrency(5, name=name)


def test_112_a_key_that_is_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="give the name of a parameter, or a function"):
        Concurrency(5, key=5)  # type: ignore[arg-type]


def test_112_a_key_must_name_a_parameter_and_the_message_names_them() -> None:
    with pytest.raises(DefinitionError) as refused:
        limits(Rate(10, per=1, key="acount"))
    assert str(refused.value) == (
        "charge: Rate(10, per=1, key='acount'): there is no parameter 'acount'; "
        "its parameters are account, cents, region. Did you mean 'account'?"
    )
    with pytest.raises(DefinitionError, match="there is no parameter 'more'"):
        limits(Rate(10, per=1, key="more"))


def test_112_a_task_is_refused_when_it_is_defined() -> None:
    app = Penstock("sqlite://")
    with pytest.raises(DefinitionError, match=r"it has no parameters"):
        app.task(limits=[Concurrency(1, key="account")])(lambda: None)
    with pytest.raises(ConfigurationError, match="give a list of limits"):
        app.task(limits=5)(charge)  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match=r"limits= belongs to @app.task"):
        app.task(charge).options(limits=[Concurrency(1)])  # type: ignore[call-arg]
    with pytest.raises(DefinitionError, match="two of its limits are the same one"):
        app.task(limits=[Concurrency(1), Concurrency(2)])(charge)


@pytest.mark.parametrize("other", [Concurrency(6, name="bank"), Concurrency(5, name="bank", key="account")])
def test_112_a_shared_limit_is_the_same_everywhere(other: Concurrency) -> None:
    app = Penstock("sqlite://")
    app.task(name="one", limits=[Concurrency(5, name="bank")])(charge)
    with pytest.raises(DefinitionError, match="is shared by name, and declared elsewhere as"):
        app.task(name="two", limits=[other])(charge)
    app.task(name="two", limits=[Concurrency(5, name="bank"), Rate(9, per=1, name="bank")])(charge)
    assert list(app.limited) == ["one", "two"]
    assert "two" in app.tasks


def test_a_key_is_readable_and_says_what_it_is() -> None:
    assert keys(Concurrency(5), "a") == ["concurrency of charge"]
    assert keys(Concurrency(5, key="account"), "a") == ["concurrency of charge: account=a"]
    assert keys(Rate(5, per=60, key="cents"), "a") == ["rate/60s of charge: cents=5"]
    assert keys(Rate(5, per=0.5, name="bank"), "a") == ["rate/0.5s bank"]
    assert keys(Rate(5, per=60, name="bank", key="region"), "a") == ["rate/60s bank: null"]
    assert keys(Concurrency(5, key=lambda call: (call["account"], *call["more"])), "a", 1, 2, 3) == [
        "concurrency of charge: key=('a', 2, 3)"
    ]


def test_the_arguments_of_a_step_give_the_same_key() -> None:
    by_payload = limits(Concurrency(5, key="account")).demands('{"account":"a"}', None)
    by_call = limits(Concurrency(5, key="account")).demands("null", (["a"], {"region": "eu"}))
    assert by_payload == by_call


@given(st.text(), st.text())
def test_different_values_have_different_keys_that_fit(one: str, other: str) -> None:
    def key(value: str) -> str:
        return limits(Concurrency(5, key=lambda _: value)).demands('{"account":"a"}', None)[0].key

    assert (key(one) == key(other)) == (one == other)
    assert len(key(one * 100)) <= LONGEST_KEY
    assert key(one).isprintable()


# deciding

KEYS = "abc"


def wanted(number: int, keys: str, seq: int, tier: int = 0) -> ClaimDemands:
    claim = Claim(str(number), 1, 1, "t", "q", tier, "{}", None, 0, 0, seq=seq)
    return ClaimDemands(claim, tuple(Demand(key, 0, 0) for key in keys))


usages = st.fixed_dictionaries(
    {
        key: st.builds(LimitUsage, most=st.integers(1, 4), used=st.integers(0, 5), waited_for=st.booleans())
        for key in KEYS
    }
)
crowds = st.lists(
    st.tuples(st.sampled_from(["a", "b", "ab", "bc", "abc"]), st.integers(0, 9), st.integers(-1, 1)),
    max_size=12,
)


@given(usages, crowds, st.sets(st.integers(0, 11)))
def test_no_job_is_admitted_where_there_is_no_room(
    before: dict[str, LimitUsage], crowd: list[tuple[str, int, int]], reserved: set[int]
) -> None:
    jobs = [wanted(number, *each) for number, each in enumerate(crowd)]
    promised = {
        str(number): Reservation(frozenset(each[0][0]), frozenset(each[0][0]), each[1])
        for number, each in enumerate(crowd)
        if number in reserved
    }
    for job, own in promised.items():
        for key in own.valid:
            before[key].used += 1
        assert job
    used = {key: how.used for key, how in before.items()}
    given_up = {key: sum(key in own.valid for own in promised.values()) for key in KEYS}
    waited_for = {key: how.waited_for for key, how in before.items()}
    admitted, refused = decide(jobs, before, promised)
    decided = [each.claim for each in admitted] + [each.claim for each in refused]
    assert sorted(claim.job_id for claim in decided) == sorted(each.claim.job_id for each in jobs)
    for key in KEYS:
        inside = sum(key in [demand.key for demand in each.demands] for each in admitted)
        assert used[key] - given_up[key] + inside <= max(before[key].most, used[key] - given_up[key])
    for each in admitted:
        if each.claim.job_id not in promised:
            assert not any(waited_for[demand.key] for demand in each.demands)
    for no in refused:
        assert no.key in [demand.key for demand in no.demands]
