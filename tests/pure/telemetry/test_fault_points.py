"""telemetry/fault_points: without a watcher nothing happens; a watcher sees every point, and a crasher strikes once."""

import re

import pytest

from penstock.errors import ConfigurationError
from penstock.telemetry import fault_points
from penstock.telemetry.fault_points import SimulatedCrash
from tests.architecture.source import modules

CALL = re.compile(r"\btx\.stage\(([^)]*)\)")


def test_without_a_watcher() -> None:
    assert not fault_points.watched
    fault_points.reach("claim.1")


def test_a_watcher_sees_every_point_while_it_watches() -> None:
    first: list[str] = []
    second: list[str] = []
    with fault_points.watching(first.append):
        assert fault_points.watched
        fault_points.reach("claim.1")
        with fault_points.watching(second.append):
            fault_points.reach("claim.2")
        assert fault_points.watched
    fault_points.reach("claim.3")
    assert (first, second) == (["claim.1", "claim.2"], ["claim.2"])
    assert not fault_points.watched


def test_what_a_thread_reads_in_the_background_is_hidden() -> None:
    seen: list[str] = []
    with fault_points.watching(seen.append):
        with fault_points.unwatched(), fault_points.unwatched():
            fault_points.reach("claim.1")
        fault_points.reach("claim.2")
    assert seen == ["claim.2"]


def test_a_crasher_strikes_at_the_visit_it_was_told() -> None:
    strike = fault_points.crasher("claim.1:3:raise")
    for point in ("claim.1", "claim.2", "claim.1"):
        strike(point)
    with pytest.raises(SimulatedCrash, match=r"claim\.1") as crash:
        strike("claim.1")
    assert crash.value.point == "claim.1"
    strike("claim.1")


def test_a_setting_decides_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_points, "_watchers", ())
    monkeypatch.setattr(fault_points, "watched", False)
    fault_points.watch(None)
    assert not fault_points.watched
    fault_points.watch("settle.commit:raise")
    assert fault_points.watched
    with pytest.raises(SimulatedCrash):
        fault_points.reach("settle.commit")


def test_an_unknown_action_or_point_is_refused() -> None:
    with pytest.raises(ValueError, match="use kill, stop, exit or raise"):
        fault_points.crasher("claim.1:explode")("claim.1")
    with pytest.raises(ConfigurationError, match=r"Did you mean 'claim\.1'"):
        fault_points.crasher("clam.1")


def test_a_crash_is_not_an_exception_that_code_would_catch() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_every_point_of_the_code_is_in_the_registry_and_no_other() -> None:
    texts = [module.text for module in modules()]
    stages = {name for text in texts for name in re.findall(r'\.stage\("([a-z_]+)"\)', text)}
    others = {name for text in texts for name in re.findall(r'points\.reach\("([a-z_.]+)"\)', text)}
    assert sorted(fault_points.STAGES) == sorted(stages | {"transaction"})
    assert sorted(fault_points.OTHERS) == sorted(others)


def test_no_stage_is_named_in_a_way_that_would_not_be_found() -> None:
    """`tx.stage(name)` with anything but a plain word in its place would have no point that can be asked for."""
    calls = [
        f"{module}: {call}"
        for module in modules()
        for call in CALL.findall(module.text)
        if not re.fullmatch(r'"[a-z_]+"', call)
    ]
    assert calls == []
