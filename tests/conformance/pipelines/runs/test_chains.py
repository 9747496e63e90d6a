"""pipelines/lifecycle/chains: Chains: serial, fan-out, fan-in, late registration, skips that go on along the chain."""

import pytest

from penstock import Penstock
from penstock.errors import ActionRefused, DefinitionError
from penstock.testing import crash_at, drain


class Pipes:
    def __init__(self, app: Penstock) -> None:
        self.log: list[str] = []

        @app.task(name="say", retries=0)
        def say(word: str) -> str:
            self.log.append(word)
            if word == "fail":
                raise ValueError(word)
            return word

        @app.pipeline(name="said")
        def said(word: str) -> object:
            return say(word)

        self.say, self.said = say, said


def test_serial_fan_out_and_fan_in(app: Penstock) -> None:
    pipes = Pipes(app)
    run = pipes.said.trigger("a")
    last = run.then(pipes.said, "b").then([(pipes.said, "c"), (pipes.say, "d")]).then(pipes.said, "e")
    assert last.status == "pending"
    drain(app)
    assert pipes.log[:2] == ["a", "b"]
    assert sorted(pipes.log[2:4]) == ["c", "d"]
    assert pipes.log[4:] == ["e"]
    assert last.result(1) == "e"


@pytest.mark.parametrize("late", [False, True])
def test_what_follows_a_failure_is_skipped_all_along(app: Penstock, late: bool) -> None:
    pipes = Pipes(app)
    run = pipes.said.trigger("fail")
    if late:
        drain(app)
    middle = run.then(pipes.said, "never")
    last = middle.then(pipes.said, "nor this")
    drain(app)
    assert (run.status, middle.status, last.status) == ("halted", "skipped", "skipped")
    assert last.reasons == ["upstream_run_not_succeeded"]
    assert pipes.log == ["fail"]


def test_a_chain_registered_late_starts_at_once(app: Penstock) -> None:
    pipes = Pipes(app)
    run = pipes.said.trigger("a")
    drain(app)
    following = run.then(pipes.said, "b")
    drain(app)
    assert following.result(1) == "b"


def test_all_must_succeed_for_a_fan_in(app: Penstock) -> None:
    pipes = Pipes(app)
    run = pipes.said.trigger("a")
    both = run.then([(pipes.said, "b"), (pipes.said, "fail")])
    last = both.then(pipes.said, "c")
    drain(app)
    assert [found.status for found in both] == ["succeeded", "halted"]
    assert last.status == "skipped"


def test_cancelling_a_run_skips_what_follows_it(app: Penstock) -> None:
    pipes = Pipes(app)
    run = pipes.said.options(delay=100).trigger("a")
    following = run.then(pipes.said, "b")
    run.cancel()
    drain(app)
    assert following.status == "skipped"


@pytest.mark.parametrize("point", ["chain.commit", "chain.committed", "chain_start.2", "chain_start.commit"])
def test_a_chain_survives_the_death_of_anybody(app: Penstock, point: str) -> None:
    pipes = Pipes(app)
    run = pipes.said.trigger("a")
    with crash_at(point) as crash:
        run.then(pipes.said, "b")
        drain(app)
    assert crash.crashed
    drain(app)
    if len(app.runs()) == 1:  # died before it was written
        run.then(pipes.said, "b")
        drain(app)
    assert pipes.log == ["a", "b"]


def test_wrong_targets_are_refused(app: Penstock) -> None:
    pipes = Pipes(app)
    run = pipes.said.trigger("a")
    with pytest.raises(DefinitionError, match="neither a pipeline nor a task"):
        run.then(len)
    with pytest.raises(ActionRefused, match="no run"):
        app.run("00000000-0000-7000-8000-000000000000").then(pipes.said, "b")
    assert len(app.runs()) == 1
