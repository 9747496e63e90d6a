"""The fluent spelling: verb after verb, each for every open branch, until a closing verb.

A flow only remembers its verbs. They are played to a builder when the definition is needed, so a flow is
immutable, can be used in several places, and says the same thing as the graph spelling.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from penstock.errors import DefinitionError
from penstock.pipelines.arguments import expression_of
from penstock.pipelines.blueprint import Blueprint, Callee, Fragment
from penstock.pipelines.builder import Builder
from penstock.pipelines.definition import Definition
from penstock.pipelines.drafting import Frame
from penstock.pipelines.graph import MISSING, arm_labels, describing, wait_options
from penstock.pipelines.growth import Growth, Tip
from penstock.pipelines.handles import Handle
from penstock.pipelines.other_apps import check_reach
from penstock.pipelines.settings import PipelineSettings, finish, stored_name
from penstock.values.cached import cached_property

WORKED_OUT = ("definition", "ending", "signature")
"""What is another after the next verb."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb with its arguments."""

    name: str
    play: Callable[[Growth], None]


class Verbs(ABC):
    """What both a named and an anonymous flow can say."""

    name: str
    verbs: tuple[Verb, ...]
    first_step: Callee | None

    def start(self, task: Callee) -> Self:
        """The first step. It is given the arguments of the run."""
        if self.first_step is not None:
            raise DefinitionError(
                f"flow {self.name!r} has two starts, {self.first_step.name!r} and {task.name!r}. "
                "Go on with .chain(...), or run both with .divide(...)"
            )
        started = self._copy()
        started.first_step = _task(self.name, "start", task)
        return started

    def chain(self, task: Callee) -> Self:
        """A step with the value of the one before; a pipeline runs as a child."""
        step = _task(self.name, "chain", task)
        return self._then("chain", lambda growth: growth.chain(step))

    def divide(self, *branches: Callee | Flow) -> Self:
        """The same value to several branches: tasks or flows."""
        if not branches:
            raise DefinitionError(f"flow {self.name!r}: divide() needs at least one branch")
        parts = [_branch(self.name, "divide", branch) for branch in branches]
        return self._then("divide", lambda growth: growth.divide(parts))

    def combine(self, task: Callee) -> Self:
        """Close a divide: one step with the values of all branches, in definition order, as one list."""
        step = _task(self.name, "combine", task)
        return self._then("combine", lambda growth: growth.combine(step))

    def expand(self, task: Callee | Flow) -> Self:
        """From here on, once for each element of the value."""
        if isinstance(task, Flow):
            started = self.expand(_begun(task))
            return started._with(*task.verbs)
        step = _task(self.name, "expand", task)
        return self._then("expand", lambda growth: growth.expand(step))

    def collapse(self, task: Callee) -> Self:
        """Close an expand: one step with the list of all elements' values, in element order."""
        step = _task(self.name, "collapse", task)
        return self._then("collapse", lambda growth: growth.collapse(step))

    def divert(self, arms: Mapping[Any, Callee | Flow | None], otherwise: object = MISSING) -> Self:
        """Exactly one arm, chosen by `str(value)`; each is a task, a flow, or None."""
        labels, chosen = arm_labels(arms, otherwise)
        parts = [None if arm is None else _branch(self.name, "divert", arm) for arm in chosen]
        return self._then("divert", lambda growth: growth.divert(labels, parts))

    def converge(self, task: Callee) -> Self:
        """Close a divert: one step with the value of the arm that ran."""
        step = _task(self.name, "converge", task)
        return self._then("converge", lambda growth: growth.converge(step))

    def barrier(self) -> Self:
        """No branch goes on before all branches of the divide have come this far."""
        return self._then("barrier", lambda growth: growth.barrier())

    def wait_for(
        self,
        signal: str,
        *,
        timeout: float | None = None,
        default: object = MISSING,
        remind: Callee | None = None,
        remind_every: float | None = None,
        key: str | None = None,
    ) -> Self:
        """Pause until the signal comes; its value goes on."""
        wait = wait_options(signal, timeout, default, remind, remind_every)
        return self._then("wait_for", lambda growth: growth.wait_for(signal, wait, key))

    def _then(self, name: str, play: Callable[[Growth], None]) -> Self:
        if self.first_step is None:
            raise DefinitionError(
                f"flow {self.name!r}: .{name}() comes before the start. Begin with .start(task)"
            )
        return self._with(Verb(name, play))

    def _with(self, *verbs: Verb) -> Self:
        grown = self._copy()
        grown.verbs = (*self.verbs, *verbs)
        return grown

    @abstractmethod
    def _copy(self) -> Self:
        """The same again, to be changed before anybody sees it."""


class Flow(Verbs, Fragment):
    """A piece of a pipeline: a branch or an arm. The value it is attached to goes to its first step."""

    def __init__(self, task: Callee) -> None:
        self.name = "flow"
        self.verbs = ()
        self.first_step = _task(self.name, "flow", task)

    def attach(self, builder: Builder, value: Handle) -> Handle:
        growth = Growth(builder, Tip(value, builder.frame))
        self.play(growth)
        return growth.handle()

    def play(self, growth: Growth) -> None:
        """Say all verbs."""
        growth.chain(_begun(self))
        for verb in self.verbs:
            verb.play(growth)

    def _copy(self) -> Self:
        same = object.__new__(type(self))
        same.name, same.verbs, same.first_step = self.name, self.verbs, self.first_step
        return same


def flow(task: Callee) -> Flow:
    """A branch of several steps: `flow(fetch).chain(clean)`."""
    return Flow(task)


class FlowBlueprint(Verbs, Blueprint):
    """A pipeline described by verbs."""

    def __init__(self, name: str, settings: PipelineSettings | None = None) -> None:
        self.name = name
        self.settings = settings or PipelineSettings()
        self.verbs = ()
        self.first_step = None
        self.overrides: Mapping[str, object] = {}

    def on_complete(self, *tasks: Callee) -> Self:
        """Tasks that hear of the end, whichever it is."""
        return self._calling("on_complete", tasks)

    def on_success(self, *tasks: Callee) -> Self:
        """Tasks that hear of success."""
        return self._calling("on_success", tasks)

    def on_halt(self, *tasks: Callee) -> Self:
        """Tasks that hear of a halt."""
        return self._calling("on_halt", tasks)

    def on_failure(self, *given: Callee | str) -> Self:
        """The strategy ("halt", "continue", "ignore"), and tasks that hear of a failure."""
        changed = self._copy()
        check_reach(getattr(self, "host", None), given)
        changed.settings = self.settings.failing(self.name, given)
        return changed

    @cached_property
    def signature(self) -> inspect.Signature:
        return _begun(self).signature

    def build(self) -> Definition:
        start = _begun(self)
        builder = Builder(self.name, getattr(self, "host", None))
        args, kwargs = _run_arguments(builder, start)
        with describing(builder):
            growth = Growth(builder, Tip(builder.call(start, args, kwargs), Frame()))
            for verb in self.verbs:
                verb.play(growth)
            result = growth.value()
        return finish(builder, start.signature, expression_of(self.name, result), self.settings)

    def _calling(self, event: str, tasks: tuple[Callee, ...]) -> Self:
        changed = self._copy()
        check_reach(getattr(self, "host", None), tasks)
        changed.settings = self.settings.calling(self.name, event, tasks)
        return changed

    def _copy(self) -> Self:
        same = object.__new__(type(self))
        same.__dict__.update({k: v for k, v in self.__dict__.items() if k not in WORKED_OUT})
        return same


def _run_arguments(builder: Builder, start: Callee) -> tuple[list[Handle], dict[str, Handle]]:
    """Stand-ins for all that the first step takes, also for `*args` and `**kwargs`."""
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    parameters = [(stored_name(p), p.kind in by_name) for p in start.signature.parameters.values()]
    args = [builder.param(name) for name, named in parameters if not named]
    return args, {name: builder.param(name) for name, named in parameters if named}


def _begun(flow: Verbs) -> Callee:
    if flow.first_step is None:
        raise DefinitionError(f"flow {flow.name!r} has no start. Begin with .start(task)")
    return flow.first_step


def _task(name: str, verb: str, task: object) -> Callee:
    if not isinstance(task, Callee):
        hint = " A flow can be a branch of divide() or an arm of divert()" if isinstance(task, Flow) else ""
        raise DefinitionError(f"flow {name!r}: {verb}() takes a task or a pipeline, not {task!r}.{hint}")
    return task


def _branch(name: str, verb: str, branch: object) -> Callable[[Growth], None]:
    if isinstance(branch, Flow):
        return branch.play
    step = _task(name, verb, branch)
    return lambda growth: growth.chain(step)
