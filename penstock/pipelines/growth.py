"""A flow as it grows: open branches in open blocks.

A verb applies to every open branch: after `divide(a, b)`, `.chain(c)` runs c behind a and another c behind b.
A closing verb closes the innermost block, in each branch of the blocks around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NoReturn

from penstock.errors import DefinitionError
from penstock.pipelines.arguments import accepts
from penstock.pipelines.blueprint import Callee
from penstock.pipelines.builder import Builder
from penstock.pipelines.draft import Draft
from penstock.pipelines.drafting import Frame
from penstock.pipelines.handles import Handle, node_of
from penstock.pipelines.wait import Wait


class BlockKind(StrEnum):
    """What opened a block."""

    DIVIDE = "divide"
    EXPAND = "expand"
    DIVERT = "divert"


_CLOSED_BY = {BlockKind.DIVIDE: "combine", BlockKind.EXPAND: "collapse", BlockKind.DIVERT: "converge"}
_A = {BlockKind.DIVIDE: "a divide", BlockKind.EXPAND: "an expand", BlockKind.DIVERT: "a divert"}


@dataclass(frozen=True, slots=True)
class Tip:
    """The end of an open branch: its value, the arm it is in, and what its next step must wait for."""

    handle: Handle
    frame: Frame
    after: tuple[Handle, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """An open block and its branches; of a divert, the decision."""

    kind: BlockKind
    parts: tuple[Tree, ...]
    switch: Draft | None = None


Tree = Tip | Block
Branch = Callable[["Growth"], None]


class Growth:
    """The open branches of one flow."""

    def __init__(self, builder: Builder, tree: Tree) -> None:
        self.builder = builder
        self.tree = tree

    # verbs

    def chain(self, task: Callee) -> None:
        self._each(lambda tip: self._call(task, [tip.handle], tip))

    def divide(self, branches: Sequence[Branch]) -> None:
        self._each(
            lambda tip: Block(BlockKind.DIVIDE, tuple([self._grown(tip, branch) for branch in branches]))
        )

    def combine(self, task: Callee) -> None:
        def closed(_: Block, tips: list[Tip]) -> Tip:
            handles = [tip.handle for tip in tips]
            together = replace(tips[0], after=tuple([after for tip in tips for after in tip.after]))
            # A task that takes one argument gets a list; one that takes as many as there are branches, those.
            spread = not accepts(task.signature, 1) and accepts(task.signature, len(handles))
            return self._call(task, handles if spread else [handles], together)

        self.tree = self._close(self.tree, BlockKind.DIVIDE, closed)

    def expand(self, task: Callee) -> None:
        def opened(tip: Tip) -> Block:
            with self.builder.within(tip.frame):
                handle = self.builder.map(task, [tip.handle], {}, tip.after)
            return Block(BlockKind.EXPAND, (Tip(handle, tip.frame),))

        self._each(opened)

    def collapse(self, task: Callee) -> None:
        def closed(_: Block, tips: list[Tip]) -> Tip:
            return self._call(task, [tips[0].handle.collect()], replace(tips[0], after=()))

        self.tree = self._close(self.tree, BlockKind.EXPAND, closed)

    def divert(self, labels: Sequence[str | None], arms: Sequence[Branch | None]) -> None:
        def opened(tip: Tip) -> Block:
            with self.builder.within(tip.frame):
                switch = self.builder.open_switch(tip.handle, labels)
            parts: list[Tree] = []
            for number, arm in enumerate(arms):
                inside = replace(tip, frame=Frame((switch.id, number), switch.scope))
                parts.append(inside if arm is None else self._grown(inside, arm))
            return Block(BlockKind.DIVERT, tuple(parts), switch)

        self._each(opened)

    def converge(self, task: Callee) -> None:
        def closed(block: Block, tips: list[Tip]) -> Tip:
            assert block.switch is not None
            merged = self.builder.merge(block.switch, [tip.handle for tip in tips])
            # An arm without steps has not waited for a barrier before the divert: what comes behind it does.
            after = dict.fromkeys([handle for tip in tips for handle in tip.after])
            return self._call(task, [merged], replace(self._outside(block), after=tuple(after)))

        self.tree = self._close(self.tree, BlockKind.DIVERT, closed)

    def barrier(self) -> None:
        self.tree = self._barrier(self.tree)

    def wait_for(self, signal: str, wait: Wait, key: str | None) -> None:
        def waited(tip: Tip) -> Tip:
            with self.builder.within(tip.frame):
                before = [handle for handle in (tip.handle, *tip.after) if node_of(handle) is not None]
                return Tip(self.builder.wait_for(signal, wait, before, key), tip.frame)

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

    def _call(self, task: Callee, args: Sequence[object], tip: Tip) -> Tip:
        with self.builder.within(tip.frame):
            return Tip(self.builder.call(task, args, {}, tip.after), tip.frame)

    def _grown(self, tip: Tip, branch: Branch) -> Tree:
        growth = Growth(self.builder, tip)
        branch(growth)
        return growth.tree

    def _each(self, verb: Callable[[Tip], Tree]) -> None:
        def applied(tree: Tree) -> Tree:
            if isinstance(tree, Tip):
                return verb(tree)
            return replace(tree, parts=tuple([applied(part) for part in tree.parts]))

        self.tree = applied(self.tree)

    def _close(self, tree: Tree, kind: BlockKind, closed: Callable[[Block, list[Tip]], Tip]) -> Tree:
        if isinstance(tree, Tip):
            raise DefinitionError(f"{_CLOSED_BY[kind]}() without {_A[kind]}: there is none to close")
        tips = [part for part in tree.parts if isinstance(part, Tip)]
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

    def _refuse_ragged(self, block: Block, verb: str) -> NoReturn:
        still = next(part.kind for part in block.parts if isinstance(part, Block))
        raise DefinitionError(
            f"{verb}(): one branch of the {block.kind} has {_A[still]} that is never closed, "
            f"where its value is needed. Close it inside that branch, with .{_CLOSED_BY[still]}(task)"
        )

    def _outside(self, block: Block) -> Tip:
        assert block.switch is not None
        outer = Frame(None, ())
        if block.switch.arm is not None:
            outer = Frame(block.switch.arm, self.builder.scope_of_arm(block.switch.arm))
        part = block.parts[0]
        assert isinstance(part, Tip)
        return Tip(part.handle, outer)

    def _barrier(self, tree: Tree) -> Tree:
        if isinstance(tree, Tip):
            return tree
        tips = [part for part in tree.parts if isinstance(part, Tip)]
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
        if isinstance(tree, Tip):
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
            with self.builder.within(Frame((tree.switch.id, number), tree.switch.scope)):
                tails.append(value if isinstance(value, Handle) else self.builder.empty_arm(value))
        return self.builder.merge(tree.switch, tails)


def _collected(value: object) -> object:
    if isinstance(value, Handle):
        return value.collect()
    assert isinstance(value, list)
    return [_collected(item) for item in value]
