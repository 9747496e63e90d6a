"""The fluent spelling: verb after verb, each for every open branch, until a closing verb.

A flow only remembers its verbs. They are replayed to a builder when the definition is needed, so a flow is
immutable, can be used in several places, and says the same thing as the graph spelling.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NoReturn, Self

from penstock.errors import DefinitionError
from penstock.pipelines.define.blueprint import Blueprint, Callee, Fragment, TaskOrPipeline
from penstock.pipelines.define.builder import Builder, BuildPosition
from penstock.pipelines.define.draft import Draft
from penstock.pipelines.define.graph import MISSING, arm_labels, describing, wait_options
from penstock.pipelines.define.handles import Handle, accepts, expression_of, node_of
from penstock.pipelines.define.other_apps import check_reach
from penstock.pipelines.define.pipeline_options import PipelineSettings, finish, stored_name
from penstock.pipelines.model.definition import Definition, Wait
from penstock.values.fork_safety import cached_property

# A flow as it grows: open branches in open blocks.
#
# A verb applies to every open branch: after `divide(a, b)`, `.chain(c)` runs c behind a and another c behind b.
# A closing verb closes the innermost block, in each branch of the blocks around it.


class BlockKind(StrEnum):
    """The verb that opened a block."""

    DIVIDE = "divide"
    EXPAND = "expand"
    DIVERT = "divert"


_CLOSED_BY = {BlockKind.DIVIDE: "combine", BlockKind.EXPAND: "collapse", BlockKind.DIVERT: "converge"}
_A = {BlockKind.DIVIDE: "a divide", BlockKind.EXPAND: "an expand", BlockKind.DIVERT: "a divert"}


@dataclass(frozen=True, slots=True)
class BranchEnd:
    """The end of an open branch: its value, the arm it is in, and what its next step must wait for."""

    handle: Handle
    frame: BuildPosition
    after: tuple[Handle, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenBlock:
    """An open block and its branches; of a divert, the decision."""

    kind: BlockKind
    parts: tuple[Tree, ...]
    switch: Draft | None = None


Tree = BranchEnd | OpenBlock
Branch = Callable[["OpenBranches"], None]


class OpenBranches:
    """The open branches of one flow."""

    def __init__(self, builder: Builder, tree: Tree) -> None:
        self.builder = builder
        self.tree = tree

    # verbs

    def chain(self, task: Callee) -> None:
        self._each(lambda tip: self._call(task, [tip.handle], tip))

    def divide(self, branches: Sequence[Branch]) -> None:
        self._each(
            lambda tip: OpenBlock(BlockKind.DIVIDE, tuple([self._grown(tip, branch) for branch in branches]))
        )

    def combine(self, task: Callee) -> None:
        def closed(_: OpenBlock, tips: list[BranchEnd]) -> BranchEnd:
            handles = [tip.handle for tip in tips]
            together = replace(tips[0], after=tuple([after for tip in tips for after in tip.after]))
            # A task that takes one argument gets a list; a task that takes one for each branch gets the values one by
            # one.
            spread = not accepts(task.signature, 1) and accepts(task.signature, len(handles))
            return self._call(task, handles if spread else [handles], together)

        self.tree = self._close(self.tree, BlockKind.DIVIDE, closed)

    def expand(self, task: Callee) -> None:
        def opened(tip: BranchEnd) -> OpenBlock:
            with self.builder.within(tip.frame):
                handle = self.builder.map(task, [tip.handle], {}, tip.after)
            return OpenBlock(BlockKind.EXPAND, (BranchEnd(handle, tip.frame),))

        self._each(opened)

    def collapse(self, task: Callee) -> None:
        def closed(_: OpenBlock, tips: list[BranchEnd]) -> BranchEnd:
            return self._call(task, [tips[0].handle.collect()], replace(tips[0], after=()))

        self.tree = self._close(self.tree, BlockKind.EXPAND, closed)

    def divert(self, labels: Sequence[str | None], arms: Sequence[Branch | None]) -> None:
        def opened(tip: BranchEnd) -> OpenBlock:
            with self.builder.within(tip.frame):
                switch = self.builder.open_switch(tip.handle, labels)
            parts: list[Tree] = []
            for number, arm in enumerate(arms):
                inside = replace(tip, frame=BuildPosition((switch.id, number), switch.scope))
                parts.append(inside if arm is None else self._grown(inside, arm))
            return OpenBlock(BlockKind.DIVERT, tuple(parts), switch)

        self._each(opened)

    def converge(self, task: Callee) -> None:
        def closed(block: OpenBlock, tips: list[BranchEnd]) -> BranchEnd:
            assert block.switch is not None
            merged = self.builder.merge(block.switch, [tip.handle for tip in tips])
            # An arm without steps has not waited for a barrier before the divert: the step behind it does.
            after = dict.fromkeys([handle for tip in tips for handle in tip.after])
            return self._call(task, [merged], replace(self._outside(block), after=tuple(after)))

        self.tree = self._close(self.tree, BlockKind.DIVERT, closed)

    def barrier(self) -> None:
        self.tree = self._barrier(self.tree)

    def wait_for(self, signal: str, wait: Wait, key: str | None) -> None:
        def waited(tip: BranchEnd) -> BranchEnd:
            with self.builder.within(tip.frame):
                before = [handle for handle in (tip.handle, *tip.after) if node_of(handle) is not None]
                return BranchEnd(self.builder.wait_for(signal, wait, before, key), tip.frame)

        self._each(waited)

    # ends

    def value(self) -> object:
        """The value of the last step; of open branches a list, of an open expand all elements."""
        return self._value(self.tree)

    def handle(self) -> Handle:
        """The value as one handle."""
        value = self.value()
        return value if isinstance(value, Handle) else self.builder.empty_arm(value)

    # growing

    def _call(self, task: Callee, args: Sequence[object], tip: BranchEnd) -> BranchEnd:
        with self.builder.within(tip.frame):
            return BranchEnd(self.builder.call(task, args, {}, tip.after), tip.frame)

    def _grown(self, tip: BranchEnd, branch: Branch) -> Tree:
        branches = OpenBranches(self.builder, tip)
        branch(branches)
        return branches.tree

    def _each(self, verb: Callable[[BranchEnd], Tree]) -> None:
        def applied(tree: Tree) -> Tree:
            if isinstance(tree, BranchEnd):
                return verb(tree)
            return replace(tree, parts=tuple([applied(part) for part in tree.parts]))

        self.tree = applied(self.tree)

    def _close(
        self, tree: Tree, kind: BlockKind, closed: Callable[[OpenBlock, list[BranchEnd]], BranchEnd]
    ) -> Tree:
        if isinstance(tree, BranchEnd):
            raise DefinitionError(f"{_CLOSED_BY[kind]}() without {_A[kind]}: there is none to close")
        tips = [part for part in tree.parts if isinstance(part, BranchEnd)]
        if len(tips) < len(tree.parts):
            if tips:
                self._refuse_ragged(tree, _CLOSED_BY[kind])
            return replace(tree, parts=tuple([self._close(part, kind, closed) for part in tree.parts]))
        if tree.kind is not kind:
            raise DefinitionError(
                f"{_CLOSED_BY[kind]}() without {_A[kind]}: the innermost open block is {_A[tree.kind]}. "
                f"Close it first, with .{_CLOSED_BY[tree.kind]}(task)"
            )
        return closed(tree, tips)

    def _refuse_ragged(self, block: OpenBlock, verb: str) -> NoReturn:
        still = next(part.kind for part in block.parts if isinstance(part, OpenBlock))
        raise DefinitionError(
            f"{verb}(): one branch of the {block.kind} has {_A[still]} that is never closed, "
            f"where its value is needed. Close it inside that branch, with .{_CLOSED_BY[still]}(task)"
        )

    def _outside(self, block: OpenBlock) -> BranchEnd:
        assert block.switch is not None
        outer = BuildPosition(None, ())
        if block.switch.arm is not None:
            outer = BuildPosition(block.switch.arm, self.builder.scope_of_arm(block.switch.arm))
        part = block.parts[0]
        assert isinstance(part, BranchEnd)
        return BranchEnd(part.handle, outer)

    def _barrier(self, tree: Tree) -> Tree:
        if isinstance(tree, BranchEnd):
            return tree
        tips = [part for part in tree.parts if isinstance(part, BranchEnd)]
        if tree.kind is BlockKind.EXPAND and tips:
            raise DefinitionError(
                "barrier(): an expand is open, and no element waits for the others inside of it. To go on when all "
                "have come this far: .collapse(task).expand(next)"
            )
        if tree.kind is not BlockKind.DIVIDE or not tips:
            return replace(tree, parts=tuple([self._barrier(part) for part in tree.parts]))
        if len(tips) < len(tree.parts):
            self._refuse_ragged(tree, "barrier")
        with self.builder.within(tips[0].frame):
            passed = self.builder.barrier([tip.handle for tip in tips])
        return replace(tree, parts=tuple([replace(tip, after=(*tip.after, passed)) for tip in tips]))

    def _value(self, tree: Tree) -> object:
        if isinstance(tree, BranchEnd):
            return tree.handle
        values = [self._value(part) for part in tree.parts]
        match tree.kind:
            case BlockKind.DIVIDE:
                return values
            case BlockKind.EXPAND:
                return _collected(values[0])
        assert tree.switch is not None
        tails = []
        for number, value in enumerate(values):
            with self.builder.within(BuildPosition((tree.switch.id, number), tree.switch.scope)):
                tails.append(value if isinstance(value, Handle) else self.builder.empty_arm(value))
        return self.builder.merge(tree.switch, tails)


def _collected(value: object) -> object:
    if isinstance(value, Handle):
        return value.collect()
    assert isinstance(value, list)
    return [_collected(item) for item in value]


CACHED = ("definition", "ending", "signature")
"""Cached attributes that the next verb makes invalid."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb with its arguments."""

    name: str
    replay: Callable[[OpenBranches], None]


class Verbs(ABC):
    """The verbs of named and anonymous flows."""

    name: str
    verbs: tuple[Verb, ...]
    first_step: Callee | None

    def start(self, task: TaskOrPipeline) -> Self:
        """The first step. It is given the arguments of the run."""
        if self.first_step is not None:
            raise DefinitionError(
                f"flow {self.name!r} has two starts, {self.first_step.name!r} and {task.name!r}. "
                "Go on with .chain(...), or run both with .divide(...)"
            )
        started = self._copy()
        started.first_step = _task(self.name, "start", task)
        return started

    def chain(self, task: TaskOrPipeline) -> Self:
        """A step with the value of the one before; a pipeline runs as a child."""
        step = _task(self.name, "chain", task)
        return self._then("chain", lambda branches: branches.chain(step))

    def divide(self, *branches: TaskOrPipeline | Flow) -> Self:
        """The same value to several branches: tasks or flows."""
        if not branches:
            raise DefinitionError(f"flow {self.name!r}: divide() needs at least one branch")
        parts = [_branch(self.name, "divide", branch) for branch in branches]
        return self._then("divide", lambda branches: branches.divide(parts))

    def combine(self, task: TaskOrPipeline) -> Self:
        """Close a divide: one step with the values of all branches, in definition order, as one list."""
        step = _task(self.name, "combine", task)
        return self._then("combine", lambda branches: branches.combine(step))

    def expand(self, task: TaskOrPipeline | Flow) -> Self:
        """From here on, once for each element of the value."""
        if isinstance(task, Flow):
            started = self.expand(_begun(task))
            return started._with(*task.verbs)
        step = _task(self.name, "expand", task)
        return self._then("expand", lambda branches: branches.expand(step))

    def collapse(self, task: TaskOrPipeline) -> Self:
        """Close an expand: one step with the list of all elements' values, in element order."""
        step = _task(self.name, "collapse", task)
        return self._then("collapse", lambda branches: branches.collapse(step))

    def divert(self, arms: Mapping[Any, TaskOrPipeline | Flow | None], otherwise: object = MISSING) -> Self:
        """Exactly one arm, chosen by `str(value)`; each is a task, a flow, or None."""
        labels, chosen = arm_labels(arms, otherwise)
        parts = [None if arm is None else _branch(self.name, "divert", arm) for arm in chosen]
        return self._then("divert", lambda branches: branches.divert(labels, parts))

    def converge(self, task: TaskOrPipeline) -> Self:
        """Close a divert: one step with the value of the arm that ran."""
        step = _task(self.name, "converge", task)
        return self._then("converge", lambda branches: branches.converge(step))

    def barrier(self) -> Self:
        """No branch goes on before all branches of the divide have come this far."""
        return self._then("barrier", lambda branches: branches.barrier())

    def wait_for(
        self,
        signal: str,
        *,
        timeout: float | None = None,
        default: object = MISSING,
        remind: TaskOrPipeline | None = None,
        remind_every: float | None = None,
        key: str | None = None,
    ) -> Self:
        """Pause until the signal comes; its value goes on."""
        wait = wait_options(signal, timeout, default, remind, remind_every)
        return self._then("wait_for", lambda branches: branches.wait_for(signal, wait, key))

    def _then(self, name: str, replay: Callable[[OpenBranches], None]) -> Self:
        if self.first_step is None:
            raise DefinitionError(
                f"flow {self.name!r}: .{name}() comes before the start. Begin with .start(task)"
            )
        return self._with(Verb(name, replay))

    def _with(self, *verbs: Verb) -> Self:
        grown = self._copy()
        grown.verbs = (*self.verbs, *verbs)
        return grown

    @abstractmethod
    def _copy(self) -> Self:
        """A copy, which the caller changes before it is used."""


class Flow(Verbs, Fragment):
    """A piece of a pipeline: a branch or an arm. The value it is attached to goes to its first step."""

    def __init__(self, task: TaskOrPipeline) -> None:
        self.name = "flow"
        self.verbs = ()
        self.first_step = _task(self.name, "flow", task)

    def attach(self, builder: Builder, value: Handle) -> Handle:
        branches = OpenBranches(builder, BranchEnd(value, builder.frame))
        self.replay(branches)
        return branches.handle()

    def replay(self, branches: OpenBranches) -> None:
        """Apply all verbs to open branches."""
        branches.chain(_begun(self))
        for verb in self.verbs:
            verb.replay(branches)

    def _copy(self) -> Self:
        same = object.__new__(type(self))
        same.name, same.verbs, same.first_step = self.name, self.verbs, self.first_step
        return same


def flow(task: TaskOrPipeline) -> Flow:
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

    def on_complete(self, *tasks: TaskOrPipeline) -> Self:
        """Call these tasks at the end of a run, whichever it is."""
        return self._calling("on_complete", tasks)

    def on_success(self, *tasks: TaskOrPipeline) -> Self:
        """Call these tasks when a run succeeds."""
        return self._calling("on_success", tasks)

    def on_halt(self, *tasks: TaskOrPipeline) -> Self:
        """Call these tasks when a run is halted."""
        return self._calling("on_halt", tasks)

    def on_failure(self, *given: TaskOrPipeline | str) -> Self:
        """Set the strategy ("halt", "continue", "ignore"), and tasks to call when a run fails."""
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
            branches = OpenBranches(builder, BranchEnd(builder.call(start, args, kwargs), BuildPosition()))
            for verb in self.verbs:
                verb.replay(branches)
            result = branches.value()
        if self.verbs and self.verbs[-1].name == "barrier":
            raise DefinitionError(
                f"flow {self.name!r}: barrier() orders nothing: no step comes after it. "
                "Remove it, or go on with .chain(...)"
            )
        return finish(builder, start.signature, expression_of(self.name, result), self.settings)

    def _calling(self, event: str, tasks: tuple[Callee, ...]) -> Self:
        changed = self._copy()
        check_reach(getattr(self, "host", None), tasks)
        changed.settings = self.settings.calling(self.name, event, tasks)
        return changed

    def _copy(self) -> Self:
        same = object.__new__(type(self))
        same.__dict__.update({k: v for k, v in self.__dict__.items() if k not in CACHED})
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


def _branch(name: str, verb: str, branch: object) -> Callable[[OpenBranches], None]:
    if isinstance(branch, Flow):
        return branch.replay
    step = _task(name, verb, branch)
    return lambda branches: branches.chain(step)
