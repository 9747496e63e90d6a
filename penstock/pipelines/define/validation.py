"""Refuses definitions whose whole graph is wrong, which a builder cannot see step by step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from penstock.errors import DefinitionError, PenstockError
from penstock.pipelines.define.blueprint import Blueprint, Callee
from penstock.pipelines.define.draft import Draft
from penstock.pipelines.define.step_options import callback_options, option
from penstock.pipelines.model.definition import (
    ALIASES,
    Callback,
    Definition,
    Node,
    NodeKind,
    Reminder,
    payload,
)
from penstock.pipelines.model.expressions import Expr, outputs_in
from penstock.pipelines.model.wiring import Wiring, wire
from penstock.values import parse
from penstock.values.typed_json.signature import Signature

DEEPEST = 28
CLOSING = frozenset({NodeKind.COLLECT, NodeKind.MERGE, NodeKind.CLOSE, NodeKind.DOOR, NodeKind.END})


def check(definition: Definition) -> Wiring:
    """The wiring of a definition that can be run; raises DefinitionError for any other."""
    try:
        if not any(node.kind.is_step for node in definition.nodes):
            raise DefinitionError("it has no steps. Call at least one task in it")
        for node in definition.nodes:
            _check_after(definition, node)
            _check_ends(definition, node)
            if node.depth > DEEPEST:
                raise DefinitionError(f"step {node.key!r} is inside more than {DEEPEST} expands")
        wiring = wire(definition)
        check_widths(wiring, definition.max_fanout)
        _check_steps(wiring)
        return wiring
    except DefinitionError as error:
        raise DefinitionError(f"pipeline {definition.name!r}: {error}") from None


def check_widths(wiring: Wiring, limit: int | None) -> None:
    """Refuse divides that are wider than an expand may be; also at the beginning."""
    if limit is None:
        return
    for key, place in wiring.places.items():
        if place.node.kind is NodeKind.SWITCH:
            continue
        behind = {edge.target for edge in place.out if wiring.places[edge.target].node.kind not in CLOSING}
        if len(behind) > max(limit, 1):
            raise DefinitionError(f"step {key!r} is divided into {len(behind)}; max_fanout is {limit}")
    if len(wiring.roots) > max(limit, 1):
        raise DefinitionError(f"it begins with {len(wiring.roots)} steps at once; max_fanout is {limit}")


def _check_steps(wiring: Wiring) -> None:
    most, least = wiring.definition.max_steps, wiring.inside(None)
    if most is not None and least > most:
        raise DefinitionError(f"it has {least} steps outside of expands alone; max_steps is {most}")


def _check_ends(definition: Definition, node: Node) -> None:
    """A pipeline may be a child of itself, but not of every run."""
    always = node.arm is None and not node.scope
    if node.kind is NodeKind.CHILD and node.target == definition.name and always:
        raise DefinitionError(
            f"step {node.key!r} starts the same pipeline again, in every run: that never ends. "
            "Call it in an arm of a switch"
        )


def _check_after(definition: Definition, node: Node) -> None:
    for source in node.after:
        if source == node.key:
            raise DefinitionError(f"step {node.key!r} depends on itself. Remove it from its own after=")
        scope = definition.by_key[source].scope
        if node.scope[: len(scope)] != scope:
            raise DefinitionError(
                f"step {node.key!r} comes after {source!r}, which is inside an expand that {node.key!r} is "
                "outside of. Come after all its elements: after=[step.collect()]"
            )


# Refuses pipelines that start each other in every run: each run would begin another, and none would ever end.
#
# One that starts itself is refused where it is defined (see `check`). The others are not known there yet, so a cycle
# is looked for when a run is to be triggered. A step in an arm or an expand may come to nothing, and is no part of one.


class Defined(Protocol):
    """A pipeline of the app."""

    @property
    def definition(self) -> Definition: ...


Find = Callable[[str], Defined | None]


def refuse_circles(definition: Definition, find: Find) -> None:
    """Raise `DefinitionError` if a run of this would never end, whatever it is given."""
    over: set[str] = set()
    way: list[str] = [definition.name]
    ahead = [_begun_by(definition)]
    while ahead:
        name = next(ahead[-1], None)
        if name is None:
            ahead.pop()
            over.add(way.pop())
        elif name in way:
            circle = " → ".join([*way[way.index(name) :], name])
            raise DefinitionError(
                f"pipeline {definition.name!r}: {circle} start each other again in every run: that never ends. "
                "Call one of them in an arm of a switch"
            )
        elif name not in over and (child := find(name)) is not None:
            way.append(name)
            ahead.append(_begun_by(child.definition))


def _begun_by(definition: Definition) -> Iterator[str]:
    """The pipelines that every run of this one starts."""
    for node in definition.nodes:
        if node.kind is NodeKind.CHILD and node.arm is None and not node.scope:
            yield node.target


# Refuses barriers and waits that no step comes after.


def check_used(drafts: Sequence[Draft], names: Mapping[str, str], result: Expr) -> None:
    """Refuse a barrier without a step behind it, and a wait that later steps do not come after."""
    used = {node for draft in drafts for node in (*draft.after, *read_by(draft))}
    used |= set(outputs_in(result))
    keys = {key for draft in drafts for key in draft.after_keys}
    for number, draft in enumerate(drafts):
        if draft.id in used or names[draft.id] in keys:
            continue
        if draft.kind is NodeKind.BARRIER:
            raise DefinitionError(
                "barrier() orders nothing: no step comes after it. Keep it, and give it to the steps behind it: "
                "passed = barrier(a, b), then step.options(after=[passed])(...)"
            )
        if draft.kind is NodeKind.WAIT and _goes_on(drafts[number + 1 :], names, draft.after_keys):
            raise DefinitionError(
                f"wait_for({draft.target!r}) holds nothing up: no step uses its value or comes after it. Pass its "
                "value on, or give it to the steps behind it: answer = wait_for(...), then "
                "step.options(after=[answer])(...)"
            )


def read_by(draft: Draft) -> list[str]:
    """The nodes whose values it uses."""
    expressions = [*draft.args, *[expr for _, expr in draft.kwargs]]
    return [key for expr in expressions for key in outputs_in(expr)]


def _goes_on(behind: Sequence[Draft], names: Mapping[str, str], before: Collection[str]) -> bool:
    return any(draft.kind.is_step and names[draft.id] not in before for draft in behind)


# Checks that a callback's signature accepts its arguments: a call that fails at the end of a run is easily overlooked.


def check_callback(
    where: str, task: Callee, callback: Callback, told: Mapping[str, object], payloads: Sequence[str]
) -> None:
    """Refuse a callback whose signature does not accept its arguments.

    `told`: an example. `payloads`: possible payloads; one that fits is enough.
    """
    given, _ = callback.arguments(told)
    needed = [p for p in task.signature.parameters.values() if p.default is p.empty]
    missing = [
        p.name for p in needed if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in given
    ]
    if missing:
        names = ", ".join([name for name in told if name not in ALIASES])
        raise DefinitionError(f"{where} {task.name!r} needs {missing[0]!r}, and is told only {names}")
    codec = getattr(task, "codec", None)
    refusals = [_refusal(codec, each) for each in payloads] if isinstance(codec, Signature) else []
    if refusals and all(refusals):
        raise DefinitionError(f"{where} does not accept what it is told: {refusals[0]}")


def _refusal(codec: Signature, payload: str) -> PenstockError | None:
    try:
        codec.decode_arguments(payload)
    except PenstockError as error:
        return error
    return None


# Reads `remind=` and `remind_every=` of a wait, and refuses a reminder that could not be called.

REMINDER_ARGUMENTS: dict[str, object] = {
    "run_id": "00000000-0000-7000-8000-000000000000",
    "pipeline": "approval",
    "signal": "approve",
    "step": "approve",
    "path": [],
    "count": 1,
    "token": "ps1",
}
"""The arguments that a reminder may take, by name, with an example of each."""


def read_reminder(where: str, remind: object, every: object) -> Reminder | None:
    """Check the two options of a reminder; None if both are absent."""
    if remind is None and every is None:
        return None
    if remind is None or every is None:
        missing = "remind=: the task to enqueue" if remind is None else "remind_every=: how often, in seconds"
        raise DefinitionError(f"{where}: a reminder also needs {missing}")
    period = option(where, "remind_every", every, parse.seconds)
    if not period:
        raise DefinitionError(f"{where}: remind_every={every!r} must be more than 0 seconds")
    if isinstance(remind, Blueprint) or not isinstance(remind, Callee):
        raise DefinitionError(f"{where}: remind= takes a task, not {remind!r}")
    callback = Callback.of(remind.name, remind.signature, callback_options(f"{where}.remind", remind))
    check_callback(
        f"{where}: the reminder",
        remind,
        callback,
        REMINDER_ARGUMENTS,
        [arguments_text(callback, REMINDER_ARGUMENTS)],
    )
    return Reminder(period, callback)


def arguments_text(callback: Callback, told: dict[str, object]) -> str:
    """The payload of a reminder. Only a task with a parameter `token` gets a token."""
    if "token" not in callback.takes:
        told = {name: value for name, value in told.items() if name != "token"}
    return payload(callback, told)
