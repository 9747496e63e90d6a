"""Builds a definition, verb by verb. Both spellings use it, so they cannot differ.

A call is placed by what it uses: in the deepest expand among its inputs, in the arm that is being built. A
value from inside an expand can leave it only through `collect`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from penstock.errors import DefinitionError
from penstock.pipelines.define.blueprint import Blueprint, Callee
from penstock.pipelines.define.draft import Arm, Draft, Scope, assign_keys, finished, public_keys, short_name
from penstock.pipelines.define.handles import (
    Handle,
    argument,
    check_call,
    elements,
    expression,
    expression_of,
    handles_in,
    label_of,
    made_by,
    node_of,
    scope_of,
)
from penstock.pipelines.define.other_apps import check_found, check_reach
from penstock.pipelines.define.step_options import StepSettings, quorum_of, read_settings, step_settings
from penstock.pipelines.define.validation import check_used, read_by
from penstock.pipelines.model.definition import Node, NodeKind, StepOptions, Wait
from penstock.pipelines.model.expressions import Element, Expr, Output, Param, StepFailed, renamed

# Where new steps go: nodes under construction, the scope and the arm they belong to.


@dataclass(frozen=True, slots=True)
class BuildPosition:
    """Where new steps go: the arm under construction, and the scope its switch is in."""

    arm: Arm | None = None
    scope: Scope = ()


class Drafting:
    """The drafts of one pipeline, and the place where the next one goes."""

    def __init__(self, pipeline: str, host: object = None) -> None:
        self.pipeline = pipeline
        self.host = host
        """The app on which the pipeline is declared, if any."""
        self.frame = BuildPosition()
        self._drafts: dict[str, Draft] = {}
        self._collects: dict[str, Handle] = {}

    @contextmanager
    def within(self, frame: BuildPosition) -> Iterator[None]:
        """Build inside an arm."""
        outer, self.frame = self.frame, frame
        try:
            yield
        finally:
            self.frame = outer

    def scope_of_arm(self, arm: Arm) -> Scope:
        """The scope that the arm's switch is in."""
        return self._drafts[arm[0]].scope

    def collect(self, handle: Handle) -> Handle:
        """Close the innermost expand: a list of all its elements' values."""
        scope, label = scope_of(handle), label_of(handle)
        if not scope:
            raise DefinitionError(
                f"{label}.collect(): it is not inside an expand. collect() closes a task.map(...)"
            )
        self._own("collect", handle)
        source = node_of(handle)
        assert source is not None
        if source not in self._collects:
            # The list belongs to the scope of the expand, not to the place where collect() was called.
            expand = self._drafts[scope[-1]]
            draft = self._add(
                NodeKind.COLLECT, source, args=(Output(source),), scope=scope[:-1], arm=expand.arm
            )
            self._collects[source] = self._handle(draft, f"{label}.collect()")
        return self._collects[source]

    def _add(
        self,
        kind: NodeKind,
        base: str,
        *,
        target: str = "",
        args: tuple[Expr, ...] = (),
        scope: Scope,
        arm: Arm | None = None,
    ) -> Draft:
        arm = arm if kind is NodeKind.COLLECT else self.frame.arm
        draft = Draft(f"#{len(self._drafts)}", kind, base, target, args=args, scope=scope, arm=arm)
        self._drafts[draft.id] = draft
        return draft

    def _handle(self, draft: Draft, label: str) -> Handle:
        return Handle(self, Output(draft.id), draft.scope, label)

    def _place(self, step: str, inputs: Sequence[Handle]) -> Scope:
        deepest = self.frame.scope
        for handle in inputs:
            self._own(step, handle)
            scope = scope_of(handle)
            if scope[: len(deepest)] != deepest and deepest[: len(scope)] != scope:
                raise DefinitionError(
                    f"step {step!r} uses values of two different expands, one of them {label_of(handle)}. "
                    "collect() one of them first"
                )
            deepest = max(deepest, scope, key=len)
        for expand in deepest[len(self.frame.scope) :]:
            if self.frame.arm and not self._is_within(self._drafts[expand].arm, self.frame.arm):
                raise DefinitionError(
                    f"step {step!r}, in an arm, uses a value from inside an expand that was opened outside "
                    "of the switch. collect() it before the switch, or switch on a value inside the expand"
                )
        return deepest

    def _own(self, step: str, handle: Handle) -> None:
        if not made_by(handle, self):
            raise DefinitionError(
                f"step {step!r} uses {label_of(handle)}, which belongs to another pipeline. "
                "Pass it as a parameter"
            )

    def _is_within(self, arm: Arm | None, outer: Arm) -> bool:
        while arm is not None and arm != outer:
            arm = self._drafts[arm[0]].arm
        return arm == outer


FAILED = "True"
"""The label of the arm for a step that has failed."""


class Builder(Drafting):
    """One pipeline under construction."""

    # what a pipeline is made of

    def param(self, name: str) -> Handle:
        """A parameter of the run."""
        return Handle(self, Param(name), (), f"the parameter {name!r}")

    def call(
        self,
        callee: Callee,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        after: Sequence[Handle] = (),
    ) -> Handle:
        """One step: a task, or a pipeline as a child run."""
        step = short_name(callee.name)
        check_call(step, callee.signature, args, kwargs)
        settings = step_settings(step, callee)
        if settings.options.max_fanout is not None:
            raise DefinitionError(
                f"step {step!r}: max_fanout limits an expand: {step}.options(max_fanout=...).map(...)"
            )
        after = [*self._after(step, settings), *after]
        scope = self._place(step, [*handles_in(args), *handles_in(kwargs), *after])
        handle = self._step(callee, settings, args, kwargs, scope, after)
        return handle if settings.fallback is None else self._guarded(handle, settings.fallback, args, kwargs)

    def map(
        self,
        callee: Callee,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        after: Sequence[Handle] = (),
    ) -> Handle:
        """Expand: one step per element of the first argument; the other arguments are the same for all."""
        step = short_name(callee.name)
        if not args:
            raise DefinitionError(f"{step}.map() needs the value to expand over as its first argument")
        check_call(step, callee.signature, args, kwargs)
        settings = step_settings(step, callee)
        if settings.fallback is not None:
            raise DefinitionError(
                f"step {step!r}: on_failure={settings.fallback.name} cannot be given the element. Let a step before "
                f"it take the elements: item = load.map(...), then {step}.options(on_failure=...)(item)"
            )
        after = [*self._after(step, settings), *after]
        scope = self._place(step, [*handles_in(args), *handles_in(kwargs), *after])
        over = self._add(NodeKind.EXPAND, step, args=(elements(callee, args[0]),), scope=scope)
        over.after, over.after_keys = _nodes(after), _keys(settings)
        own = settings.options
        over.options = StepOptions(on_failure=own.on_failure, max_fanout=own.max_fanout)
        element = Handle(self, Element(), (*scope, over.id), f"an element of {step}")
        inner = replace(settings, after=(), options=replace(own, max_fanout=None))
        entry = self._step(callee, inner, [element, *args[1:]], kwargs, (*scope, over.id), [])
        over.base = node_of(entry) or step
        return entry

    def first(self, handles: Sequence[object], count: int | None = None) -> Handle:
        """The value of the step that succeeds first; with a count, a list of the values of the first `count`."""
        inputs = self._steps_only("first", handles)
        scope = self._place("first()", inputs)
        for handle in inputs:
            if scope_of(handle) != scope:
                raise DefinitionError(
                    f"first(): {label_of(handle)} is outside of the expand that the others are inside. "
                    "first() takes steps of one expand; collect() those that are inside"
                )
        sources = tuple([Output(self._in_arm(handle, self.frame)) for handle in inputs])
        draft = self._add(NodeKind.FIRST, sources[0].node, args=sources, scope=scope)
        draft.quorum = quorum_of(count, len(set(sources)))
        return self._handle(draft, "first()")

    def barrier(self, handles: Sequence[object]) -> Handle:
        """A point that is passed when all of them have ended well; it has no value."""
        inputs = self._steps_only("barrier", handles)
        scope = self._place("barrier()", inputs)
        draft = self._add(NodeKind.BARRIER, node_of(inputs[0]) or "", scope=scope)
        draft.after = _nodes(inputs)
        return self._handle(draft, "barrier()")

    def wait_for(
        self, signal: str, wait: Wait, after: Sequence[object] = (), key: str | None = None
    ) -> Handle:
        """A step that a signal ends, or its timeout."""
        settings = read_settings(signal, {"after": after, **({"key": key} if key else {})})
        sources = self._after(signal, settings)
        draft = self._add(
            NodeKind.WAIT, short_name(signal), target=signal, scope=self._place(signal, sources)
        )
        draft.key, draft.wait = settings.key, wait
        draft.after, draft.after_keys = _nodes(sources), _keys(settings)
        return self._handle(draft, f"wait_for({signal!r})")

    # switches, in the three parts that the fluent spelling needs

    def open_switch(self, value: Handle, labels: Sequence[str | None]) -> Draft:
        """The decision. Its arms are then built inside `within`."""
        self._own("switch()", value)
        scope = self._place("switch()", [value])
        draft = self._add(NodeKind.SWITCH, node_of(value) or "param", args=(expression(value),), scope=scope)
        draft.arms = tuple(labels)
        return draft

    def merge(self, switch: Draft, tails: Sequence[Handle]) -> Handle:
        """The value of the arm that ran."""
        sources = []
        for number, tail in enumerate(tails):
            frame = BuildPosition((switch.id, number), switch.scope)
            if len(scope_of(tail)) > len(switch.scope):
                raise DefinitionError(
                    f"an arm of the switch ends inside an expand, with {label_of(tail)}. "
                    "Close the expand in the arm: .collect(), or .collapse(task)"
                )
            with self.within(frame):
                sources.append(Output(self._in_arm(tail, frame)))
        draft = self._add(
            NodeKind.MERGE, switch.id, target=switch.id, args=tuple(sources), scope=switch.scope
        )
        draft.arm = switch.arm
        return self._handle(draft, "switch()")

    def empty_arm(self, value: object, leaves: Sequence[Handle] = ()) -> Handle:
        """A place in the arm being built that has this value, once the leaves have ended."""
        draft = self._add(NodeKind.PASS, "", args=(expression_of("switch()", value),), scope=self.frame.scope)
        draft.base = self.frame.arm[0] if self.frame.arm else "value"
        draft.after = _nodes(leaves)
        return self._handle(draft, "an arm of the switch")

    def leaves_of(self, arm: Arm) -> list[Handle]:
        """The ends of an arm; those inside an expand of its own are collected."""
        inside = [draft for draft in self._drafts.values() if self._is_within(draft.arm, arm)]
        used = {key for draft in inside for key in (*draft.after, *read_by(draft))}
        level = self._drafts[arm[0]].scope
        leaves = []
        for draft in inside:
            if draft.id not in used and draft.kind not in (NodeKind.EXPAND, NodeKind.SWITCH):
                handle = self._handle(draft, draft.base)
                while len(scope_of(handle)) > len(level):
                    handle = self.collect(handle)
                leaves.append(handle)
        return leaves

    # the end

    def nodes(self, result: Expr) -> tuple[tuple[Node, ...], Expr]:
        """The finished nodes in the order of their keys, and the result in terms of those keys."""
        names = assign_keys(self._drafts.values())
        check_used(list(self._drafts.values()), names, result)
        keys, stand_ins = public_keys(names), self._stand_ins(names)
        nodes = [
            finished(draft, names, keys, self._substitutes_for(draft, stand_ins))
            for draft in self._drafts.values()
        ]
        return tuple(sorted(nodes, key=lambda node: node.key)), renamed(result, names)

    def _stand_ins(self, names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """By the key of a step with a fallback: the switch, and the merge that has the value of either."""
        merges = {draft.target: draft.id for draft in self._drafts.values() if draft.kind is NodeKind.MERGE}
        return {
            names[asked.node]: (switch.id, names[merges[switch.id]])
            for switch in self._drafts.values()
            for asked in switch.args[:1]
            if isinstance(asked, StepFailed)
        }

    def _substitutes_for(self, reader: Draft, stand_ins: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        """For the keys that the reader comes after: the merge nodes that replace steps with fallbacks."""
        asked = [(key, *stand_ins[key]) for key in reader.after_keys if key in stand_ins]
        return {key: merge for key, switch, merge in asked if not self._is_within(reader.arm, (switch, 0))}

    # placing

    def _step(
        self,
        callee: Callee,
        settings: StepSettings,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        scope: Scope,
        after: Sequence[Handle],
    ) -> Handle:
        step = short_name(callee.name)
        check_reach(self.host, callee)
        if isinstance(callee, Blueprint):
            check_found(self.host, callee)
        kind = NodeKind.CHILD if isinstance(callee, Blueprint) else NodeKind.TASK
        draft = self._add(kind, step, target=callee.name, scope=scope)
        draft.key, draft.options = settings.key, settings.options
        draft.args = tuple([argument(callee, number, value) for number, value in enumerate(args)])
        draft.kwargs = tuple([(name, argument(callee, name, value)) for name, value in kwargs.items()])
        draft.after, draft.after_keys = _nodes(after), _keys(settings)
        return self._handle(draft, settings.key or step)

    def _guarded(
        self, step: Handle, fallback: Callee, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> Handle:
        """The step's value or, if it fails, that of another which is given the same."""
        node, scope = node_of(step) or "", scope_of(step)
        draft = self._add(NodeKind.SWITCH, node, args=(StepFailed(node),), scope=scope)
        draft.arms = (FAILED, None)
        if not fallback.signature.parameters:
            args, kwargs = (), {}
        with self.within(BuildPosition((draft.id, 0), scope)):
            other = self.call(fallback, args, kwargs)
        return self.merge(draft, [other, step])

    def _after(self, step: str, settings: StepSettings) -> list[Handle]:
        for source in settings.after:
            if not isinstance(source, (Handle, str)) or (
                isinstance(source, Handle) and node_of(source) is None
            ):
                raise DefinitionError(f"step {step!r}: after= takes steps or their keys, not {source!r}")
        return [source for source in settings.after if isinstance(source, Handle)]

    def _steps_only(self, verb: str, handles: Sequence[object]) -> list[Handle]:
        if len(handles) == 1 and isinstance(handles[0], list | tuple):
            handles = handles[0]
        if not handles:
            raise DefinitionError(f"{verb}() needs at least one step")
        for handle in handles:
            if not isinstance(handle, Handle) or node_of(handle) is None:
                raise DefinitionError(f"{verb}() takes steps, not {handle!r}")
        return [handle for handle in handles if isinstance(handle, Handle)]

    def _in_arm(self, handle: Handle, frame: BuildPosition) -> str:
        """A node inside the frame's arm that has the handle's value: itself, or one that passes it on."""
        node = node_of(handle)
        if node is not None and (frame.arm is None or self._is_within(self._drafts[node].arm, frame.arm)):
            return node
        return node_of(self.empty_arm(handle)) or ""


def _nodes(handles: Sequence[Handle]) -> tuple[str, ...]:
    return tuple([node for handle in handles if (node := node_of(handle)) is not None])


def _keys(settings: StepSettings) -> tuple[str, ...]:
    return tuple([source for source in settings.after if isinstance(source, str)])
