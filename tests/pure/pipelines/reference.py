"""A slow, obvious interpreter of definitions: what each node comes to, by recursion over what it depends on.

It knows nothing of edges, counts or joins. Failures with strategy "halt" only block here: when a run halts,
what did not start depends on the order of things, and tests compare only what ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from penstock.pipelines.model.definition import Definition, Node, NodeKind, Strategy
from penstock.pipelines.model.expressions import (
    Expr,
    Leaf,
    Output,
    Param,
    Path,
    StepFailed,
    evaluate,
    outputs_in,
)
from penstock.values.status import Reason
from penstock.values.typed_json import tags
from tests.pure.pipelines.machine import Boom, Outcome

RAN, IGNORED, BLOCKED, PRUNED = "ran", "ignored", "blocked", "pruned"


@dataclass(frozen=True)
class End:
    """What became of a node: how, its value, and for steps whether its body ran and failed."""

    how: str
    value: object = None
    failed: bool = False
    chosen: int = -1
    missing: bool = False
    """Its value would be that of a failure which is ignored."""


class Reference:
    """The ends of all nodes of one run. `winner` tells which input a `first` took, when several succeeded.

    `together`: as it was before steps inside expands waited by themselves.
    """

    def __init__(
        self,
        definition: Definition,
        outcome: Outcome,
        params: dict[str, object],
        winner: Callable[[str, Path], str | None],
        together: bool = False,
    ) -> None:
        self.definition = definition
        self.nodes = definition.by_key
        self.outcome = outcome
        self.params = params
        self.winner = winner
        self.together = together
        self._known: dict[tuple[str, Path], End] = {}

    def end(self, key: str, path: Path) -> End:
        node = self.nodes[key]
        at = (key, path[: node.depth])
        if at not in self._known:
            self._known[at] = self._end(node, at[1])
        return self._known[at]

    def steps(self) -> Iterator[tuple[str, Path]]:
        """Every step that exists: at each path that the expands around it lead to."""
        for node in self.definition.nodes:
            if node.kind.is_step:
                for path in self._paths(node):
                    yield node.key, path

    def losers(self, reasons: Mapping[tuple[str, Path], Reason | None]) -> set[tuple[str, Path]]:
        """The waits that were ended unanswered; whether they were is a matter of order, that they may be is not."""
        lost = {at for at, reason in reasons.items() if reason is Reason.FIRST_DECIDED}
        assert all(self.may_lose(*at) for at in lost), lost
        return lost

    def may_lose(self, key: str, path: Path) -> bool:
        """Whether a wait may have been ended unanswered: all that uses it is a first, which others have decided."""
        uses = [node for node in self.definition.nodes if key in (*node.reads, *node.after)]
        if (
            self.nodes[key].kind is not NodeKind.WAIT
            or len(uses) != 1
            or key in outputs_in(self.definition.result)
        ):
            return False
        (user,) = uses
        told = self.winner(user.key, path) or ""
        won = (
            [user.reads[int(number)] for number in told.split(",")[1 : user.quorum + 1]]
            if "," in told
            else [told]
        )
        enough = len(won) == user.quorum and set(won) <= set(user.reads) - {key}
        return user.kind is NodeKind.FIRST and enough and all(self._how(one, path) == RAN for one in won)

    @property
    def result(self) -> object:
        return self.value(self.definition.result, ())

    def value(self, expr: Expr, path: Path, element: object = None) -> object:
        def leaf(found: Leaf) -> object:
            if isinstance(found, Param):
                return self.params[found.name]
            if isinstance(found, StepFailed):
                return self.end(found.node, path).how == IGNORED
            return self.end(found.node, path).value if isinstance(found, Output) else element

        return evaluate(expr, leaf)

    def _paths(self, node: Node) -> list[Path]:
        paths: list[Path] = [()]
        for expand in node.scope:
            paths = [(*path, index) for path in paths for index in range(self._width(expand, path))]
        return paths

    def _width(self, expand: str, path: Path) -> int:
        end = self.end(expand, path)
        return len(end.value) if end.how == RAN and isinstance(end.value, list) else 0

    def _end(self, node: Node, path: Path) -> End:
        match node.kind:
            case NodeKind.COLLECT:
                return self._collect(node, path)
            case NodeKind.FIRST:
                return self._first(node, path)
            case NodeKind.MERGE:
                return self._merge(node, path)
        how = self._verdict(node, path)
        if how != RAN:
            return End(how)
        match node.kind:
            case NodeKind.BARRIER:
                return End(RAN)
            case NodeKind.PASS:
                return self._pass(node, path)
            case NodeKind.SWITCH:
                return End(RAN, chosen=self._choice(node, path))
            case NodeKind.EXPAND:
                return self._expand(node, path)
        return self._step(node, path)

    def _pass(self, node: Node, path: Path) -> End:
        """What stands in an arm for a step outside of it ends as that one did."""
        value = node.args[0]
        missing = isinstance(value, Output) and self.end(value.node, path).missing
        ignored = isinstance(value, Output) and self._how(value.node, path) == IGNORED
        return End(IGNORED if ignored else RAN, self.value(value, path), missing=missing)

    def _verdict(self, node: Node, path: Path) -> str:
        """Whether all it waits for went well, wherever that is."""
        found = [self._how(key, path) for key in node.reads]
        order = [self._how(key, path) for key in node.after]
        if self.together:
            self._wait_for_all(node, path, found, order)
        elif node.kind is NodeKind.EXPAND and not self._is_placed(node):
            entry = self._entry(node)
            found += [self._how(key, path) for key in entry.reads if self.nodes[key].scope == node.scope]
            order += [self._how(key, path) for key in entry.after if self.nodes[key].scope == node.scope]
        return self._told(node, path, found, order)

    def _wait_for_all(self, node: Node, path: Path, found: list[str], order: list[str]) -> None:
        """As it was: what lies outside of an expand is waited for at its entry, for all steps inside."""
        found[:] = [self._how(key, path) for key in node.reads if self.nodes[key].scope == node.scope]
        order[:] = [self._how(key, path) for key in node.after if self.nodes[key].scope == node.scope]
        if node.kind is NodeKind.EXPAND:
            inside = [
                n for n in self.definition.nodes if n.scope[: node.depth + 1] == (*node.scope, node.key)
            ]
            for inner in inside:
                found += [self._how(key, path) for key in inner.reads if self.nodes[key].scope == node.scope]
                order += [self._how(key, path) for key in inner.after if self.nodes[key].scope == node.scope]

    def _told(self, node: Node, path: Path, found: list[str], order: list[str]) -> str:
        found += [how for how in order if how != PRUNED]
        if node.arm is not None and self.nodes[node.arm[0]].scope == node.scope:
            switch = self.end(node.arm[0], path)
            found.append(switch.how if switch.how != RAN or switch.chosen == node.arm[1] else PRUNED)
        if PRUNED in found:
            return PRUNED
        return BLOCKED if BLOCKED in found else RAN

    def _is_placed(self, node: Node) -> bool:
        """Whether a nested expand says by its own words to which element around it it belongs."""
        near = [key for key in (*node.reads, *node.after) if self.nodes[key].scope == node.scope]
        in_arm = node.arm is not None and self.nodes[node.arm[0]].scope == node.scope
        return not node.scope or bool(near) or in_arm

    def _entry(self, expand: Node) -> Node:
        scope = (*expand.scope, expand.key)
        (entry,) = [node for node in self.definition.nodes if node.scope == scope and node.is_entry]
        return entry

    def _how(self, key: str, path: Path) -> str:
        return self.end(key, path).how

    def _choice(self, node: Node, path: Path) -> int:
        label = str(tags.read(self.value(node.args[0], path)))
        return node.arms.index(label) if label in node.arms else node.arms.index(None)

    def _expand(self, node: Node, path: Path) -> End:
        over = node.args[0]
        if isinstance(over, Output) and self.end(over.node, path).missing:
            return End(RAN, [])
        elements = tags.raw_elements(self.value(over, path))
        if isinstance(elements, list):
            # Over nothing it is over at once; else its first step must be able to begin.
            how = self._first_step(node, path) if elements and not self.together else RAN
            return End(how, elements if how == RAN else None)
        ignored = node.options.on_failure in (Strategy.IGNORE, Strategy.OPTIONAL)
        return End(RAN if ignored else BLOCKED, [] if ignored else None, failed=True)

    def _first_step(self, expand: Node, path: Path) -> str:
        entry = self._entry(expand)
        found = [self._how(key, path) for key in entry.reads]
        order = [self._how(key, path) for key in entry.after]
        return self._told(entry, path, found, order)

    def _step(self, node: Node, path: Path) -> End:
        element = None
        if node.is_entry:
            values = self.end(node.scope[-1], path).value
            assert isinstance(values, list)
            element = values[path[-1]]
        args = [self.value(expr, path, element) for expr in node.args]
        kwargs = {name: self.value(expr, path, element) for name, expr in node.kwargs}
        try:
            return End(RAN, self.outcome(node.key, path, args, kwargs))
        except Boom:
            strategy = node.options.on_failure or self.definition.on_failure
            ignored = strategy in (Strategy.IGNORE, Strategy.OPTIONAL)
            return End(IGNORED if ignored else BLOCKED, failed=True, missing=ignored)

    def _collect(self, node: Node, path: Path) -> End:
        expand = self.nodes[node.reads[0]].scope[-1]
        opened = self.end(expand, path)
        if opened.how != RAN:
            return End(opened.how)
        ends = [self.end(node.reads[0], (*path, index)) for index in range(self._width(expand, path))]
        if any(end.how == BLOCKED for end in ends):
            return End(BLOCKED)
        return End(RAN, [end.value for end in ends])

    def _several(self, node: Node, path: Path, ends: dict[str, End], good: list[str]) -> End:
        hows = [end.how for end in ends.values()]
        if hows.count(RAN) + hows.count(IGNORED) < node.quorum:
            return End(BLOCKED if BLOCKED in hows else PRUNED)
        if len(good) < node.quorum:
            return End(RAN, missing=True)
        told = [node.reads[int(number)] for number in (self.winner(node.key, path) or "").split(",")[1:]]
        assert set(told) <= set(good)
        # A halted run may never have got to decide it.
        chosen = (told if len(told) >= node.quorum else good)[: node.quorum]
        return End(RAN, [ends[key].value for key in node.reads if key in chosen])

    def _first(self, node: Node, path: Path) -> End:
        ends = {key: self.end(key, path) for key in node.reads}
        good = [key for key, end in ends.items() if end.how == RAN]
        if node.quorum > 1:
            return self._several(node, path, ends, good)
        if good:
            winner = self.winner(node.key, path) if len(ends) > 1 else good[0]
            # A halted run may never have got to decide it.
            won = ends[winner if winner in good else good[0]]
            return End(RAN, won.value, missing=won.missing)
        if any(end.how == IGNORED for end in ends.values()):
            return End(RAN, missing=True)
        return End(BLOCKED if any(end.how == BLOCKED for end in ends.values()) else PRUNED)

    def _merge(self, node: Node, path: Path) -> End:
        ends = [self.end(key, path) for key in node.reads]
        for end in ends:
            if end.how in (RAN, IGNORED):
                return End(RAN, end.value, missing=end.missing)
        return End(BLOCKED if any(end.how == BLOCKED for end in ends) else PRUNED)
