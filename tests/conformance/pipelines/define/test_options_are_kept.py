"""pipelines/define/step_options, task_options: Options are kept wherever a task or a pipeline is handed over, or
refused; none is passed over in silence.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Penstock, wait_for
from penstock.errors import ConfigurationError, DefinitionError
from penstock.testing import drain, travel

QUEUED = "SELECT j.queue, j.options FROM {jobs} j WHERE j.task = :task ORDER BY j.id"


class Scene:
    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.said: list[object] = []

        @app.task(name="say", timeout=5)
        def say(word: object = None) -> object:
            self.said.append(word)
            return word

        @app.pipeline(name="saying")
        def saying(word: str) -> object:
            return say(word)

        self.say, self.saying = say, saying

    def queued(self, task: str) -> list[tuple[str, str | None]]:
        rows = self.app.database.read(lambda tx: tx.rows(QUEUED, task=task))
        return [(queue, options) for queue, options in rows]


@pytest.fixture
def scene(app: Penstock) -> Scene:
    return Scene(app)


def test_tasks_that_follow_a_run_have_their_own_options_each(scene: Scene) -> None:
    run = scene.saying.trigger("first")
    run.then(scene.say, "plain")
    run.then(scene.say.options(queue="mail", delay=30), "late")
    run.then(scene.say, "plain again")
    drain(scene.app)
    assert sorted(map(str, scene.said)) == ["first", "plain", "plain again"]
    travel(scene.app, 31)
    drain(scene.app)
    assert scene.said[3:] == ["late"]
    assert sorted(queue for queue, _ in scene.queued("say")) == ["default", "default", "default", "mail"]


def test_pipelines_that_follow_a_run_have_labels_and_no_other_options(scene: Scene) -> None:
    run = scene.saying.trigger("first")
    assert run.then(scene.saying.options(labels=["tenant:7"]), "next").labels == ["tenant:7"]
    for option in ({"delay": 5}, {"key": "k"}, {"queue": "mail"}, {"at": datetime.now(UTC)}):
        with pytest.raises(ConfigurationError, match=next(iter(option))):
            run.then(scene.saying.options(**option), "never")


def test_those_of_a_list_without_arguments_of_their_own_are_given_those_beside_it(scene: Scene) -> None:
    run = scene.saying.trigger("first")
    run.then([scene.say, (scene.say, "its own"), scene.saying], word="all")
    drain(scene.app)
    assert sorted(map(str, scene.said)) == ["all", "all", "first", "its own"]


@pytest.mark.parametrize("name", ["target", "self", "work"])
def test_arguments_of_any_name_are_passed_on(app: Penstock, name: str) -> None:
    seen: list[object] = []

    @app.task(name="takes")
    def takes(**given: object) -> None:
        seen.append(given)

    async def ask() -> None:
        await takes.enqueue_async(**{name: 1})
        run = await app.flow("taking").start(takes).trigger_async(**{name: 2})
        await run.then_async(takes, **{name: 3})

    asyncio.run(ask())
    drain(app)
    assert seen == [{name: 1}, {name: 2}, {name: 3}]


def test_a_callback_waits_as_it_says(scene: Scene) -> None:
    @scene.app.task(name="hear", delay=20)
    def hear(status: str) -> None:
        scene.said.append(status)

    flow = scene.app.flow("heard").start(scene.say).on_complete(hear).on_success(hear.options(delay=40))
    flow.trigger("a")
    drain(scene.app)
    assert scene.said == ["a"]
    travel(scene.app, 21)
    drain(scene.app)
    assert scene.said == ["a", "succeeded"]
    travel(scene.app, 20)
    drain(scene.app)
    assert scene.said == ["a", "succeeded", "succeeded"]


@pytest.mark.parametrize(
    "option", [{"key": "k"}, {"optional": True}, {"after": ["a"]}, {"on_failure": "halt"}]
)
def test_what_makes_no_sense_for_a_callback_is_refused(scene: Scene, option: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=next(iter(option))):
        scene.app.flow("odd").start(scene.say).on_complete(scene.say.options(**option))


def test_a_step_waits_as_its_task_says_unless_the_step_says_otherwise(scene: Scene) -> None:
    @scene.app.task(name="late", delay=30)
    def late(word: str) -> str:
        return word

    @scene.app.pipeline(name="both")
    def both() -> object:
        return late("a"), late.options(delay=0)("b"), late.map(["c", "d"]).collect()

    run = both.trigger()
    drain(scene.app)
    assert {step.key: step.status.value for step in run.steps()} == {
        "late": "scheduled",
        "late_2": "succeeded",
        "late_3": "scheduled",
    }
    travel(scene.app, 31)
    drain(scene.app)
    assert run.result(1) == ["a", "b", ["c", "d"]]


def test_a_step_without_timeout_has_none_although_its_task_has(scene: Scene) -> None:
    @scene.app.pipeline(name="patient")
    def patient() -> object:
        return scene.say.options(timeout=None)("a")

    patient.trigger()
    assert scene.queued("say") == [("default", '{"timeout":null}')]


def test_the_timeout_of_a_child_run_ends_it(scene: Scene) -> None:
    @scene.app.pipeline(name="asking")
    def asking(word: str) -> object:
        return scene.say(wait_for("answer"))

    parent = scene.app.flow("parent").start(scene.say).expand(asking.options(timeout=60)).collapse(scene.say)
    run = parent.trigger(["a", "b"])
    drain(scene.app)
    answered, silent = scene.app.runs(pipeline="asking")
    answered.signal("answer", "yes")
    drain(scene.app)
    assert (run.status, silent.status) == ("running", "running")
    travel(scene.app, 61)
    drain(scene.app)
    assert (answered.status, silent.status, silent.reasons) == ("succeeded", "halted", ["deadline_exceeded"])
    assert (run.status, run.reasons) == ("halted", ["child_run_failed"])

    again = run.revive()
    drain(scene.app)
    scene.app.runs(pipeline="asking", status="running")[0].signal("answer", "late")
    drain(scene.app)
    assert sorted(map(str, again.result(1))) == ["late", "yes"]


def test_a_child_run_that_is_to_be_tried_again_is_refused(scene: Scene) -> None:
    @scene.app.pipeline(name="parent")
    def parent() -> object:
        return scene.saying.options(retries=2)("a")  # type: ignore[call-arg]

    with pytest.raises(DefinitionError, match="retries"):
        parent.trigger()


def test_of_two_flows_of_one_name_only_the_last_can_be_a_child(scene: Scene) -> None:
    begun = scene.app.flow("begun").start(scene.say)
    one, other = begun.chain(scene.say), begun.chain(scene.saying)
    refused = scene.app.flow("refused").start(scene.say).chain(one)
    with pytest.raises(DefinitionError, match="several flows named 'begun'"):
        refused.trigger("a")
    run = scene.app.flow("taken").start(scene.say).chain(other.options(key="child")).trigger("a")
    drain(scene.app)
    assert run.result(1) == "a"


def test_of_delay_and_at_the_one_said_last_counts(scene: Scene) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)

    @scene.app.task(name="dated", at=later)
    def dated() -> None: ...

    assert scene.say.options(at=later).options(delay=0).enqueue().status == "available"
    assert dated.options(delay=0).enqueue().status == "available"
    assert dated.options(queue="mail").enqueue().status == "scheduled"
    assert scene.say.options(delay=0).options(at=later).enqueue().status == "scheduled"
    assert scene.saying.options(at=later).options(delay=0).trigger("a").status == "running"
    with pytest.raises(ConfigurationError, match="not both"):
        scene.say.options(at=later, delay=5)
