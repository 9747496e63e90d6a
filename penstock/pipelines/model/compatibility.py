"""Checks whether a run can go on with another definition: all rows that the run has must mean the same in both. Pure.

Three things are there. *Steps*, whatever became of them: they were made by their node, from the values of those before
it, so all of these must be the same; and an expand that is open must have waited for the same. *Tokens*: what has ended
has told those behind it, once, and will tell no other node; so its edges must be the same. *Counts*: a join that has a
row knows how many tokens are to come; so that number must be the same. All else may differ: it was not looked at yet.

What a node that only steers has decided is not always written down. Where that is unknown it counts as decided, which
may refuse what would have been possible, and never allows what is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from penstock.pipelines.model.definition import CLOSE, DOOR, END, Node, NodeKind
from penstock.pipelines.model.diff import shape_changes
from penstock.pipelines.model.wiring import NodeWiring, Wiring, wire


@dataclass(frozen=True, slots=True)
class StoredState:
    """The rows that a run has in storage. `begun`: its first steps were decided.

    `steps`: nodes with steps, and whether one of them has ended. `joins`: nodes with a count, and whether one has
    fired. `expanding`: large expands under way.
    """

    begun: bool = True
    steps: Mapping[str, bool] = field(default_factory=dict)
    joins: Mapping[str, bool] = field(default_factory=dict)
    expanding: frozenset[str] = frozenset()


def obstacles(old: Wiring, new: Wiring, present: StoredState) -> list[str]:
    """The reasons why the run cannot go on with `new`, one in a line; none: it can."""
    if not present.begun:
        return []
    told = nodes_that_fired(old, present)
    fixed = _with_those_before(old, {*told, *present.steps, *present.expanding} - {END})
    found = list(_differing(old, new, sorted(fixed | (present.joins.keys() - {END}))))
    found += _entries(old, new, sorted(fixed))
    found += _roots(old, new)
    for key in sorted(told & old.places.keys() & new.places.keys()):
        found += _edges(old, new, key)
    for key in sorted(present.joins.keys() & old.places.keys() & new.places.keys()):
        before, after = old.places[key].count, new.places[key].count
        if before != after:
            found.append(f"{_name(key)} has begun to count: it waits for {before}, and would for {after}")
    return list(dict.fromkeys(found))


def nodes_that_fired(wiring: Wiring, present: StoredState) -> set[str]:
    """The nodes that have told those behind them that they ended, or may have."""
    known = {key for key, ended in present.steps.items() if ended}
    known |= {key for key, fired in present.joins.items() if fired and not _is_step(wiring, key)}
    known |= present.expanding
    known |= {key for key in wiring.roots if not _is_step(wiring, key)}
    known.discard(END)
    touched = present.steps.keys() | present.joins.keys()
    before = _before(wiring)
    steering = [key for key in wiring.places if not _is_step(wiring, key) and key != END]
    grows = True
    while grows:
        more = {
            key
            for key in steering
            if key not in known
            and (
                any(target in touched or target in known for target in _targets(wiring.places[key]))
                or (key not in present.joins and any(source in known for source in before.get(key, ())))
            )
        }
        known |= more
        grows = bool(more)
    return known


def stable_nodes(old: Wiring, new: Wiring) -> frozenset[str]:
    """The steps that give the same value in both: they, and all the steps they depend on, are unchanged."""
    old, new = _without_doors(old), _without_doors(new)
    stable: set[str] = set()
    before, other = _before(old), _before(new)
    for key in [*new.order, *sorted(new.places.keys() - set(new.order))]:
        if key in old.places and before.get(key, set()) == other.get(key, set()):
            same = not shape_changes(old.places[key].node, new.places[key].node)
            if same and other.get(key, set()) <= stable:
                stable.add(key)
    return frozenset(stable)


def _without_doors(wiring: Wiring) -> Wiring:
    """Compare without doors: where a step waits does not change its value."""
    return wire(replace(wiring.definition, doors=False)) if wiring.definition.doors else wiring


def _differing(old: Wiring, new: Wiring, keys: Iterable[str]) -> Iterator[str]:
    for key in keys:
        if key not in new.places:
            yield f"{_name(key)} is in the run already, and is no longer there"
        elif key in old.places:
            changes = shape_changes(old.places[key].node, new.places[key].node)
            if changes:
                yield f"{_name(key)} is in the run already, and has changed: {'; '.join(map(str, changes))}"


def _entries(old: Wiring, new: Wiring, keys: Iterable[str]) -> Iterator[str]:
    """Nodes that have begun and would wait for other nodes. For ends of expands only the count matters."""
    before, after = _into(old), _into(new)
    for key in keys:
        if key.startswith(CLOSE) or key not in old.places or key not in new.places:
            continue
        if shape_changes(old.places[key].node, new.places[key].node):
            continue  # that says it
        was, would = before.get(key, set()), after.get(key, set())
        for source in sorted({edge[0] for edge in would - was}):
            yield f"{_name(key)} has begun and would have had to wait for {_name(source)} too"
        for source in sorted({edge[0] for edge in was - would} - {edge[0] for edge in would - was}):
            yield f"{_name(key)} has waited for {_name(source)}, and would not have"


def _roots(old: Wiring, new: Wiring) -> Iterator[str]:
    for key in sorted(set(new.roots) - set(old.roots)):
        yield f"{_name(key)} would have to start with the run, which has begun"


def _edges(old: Wiring, new: Wiring, key: str) -> Iterator[str]:
    before, after = _out(old.places[key]), _out(new.places[key])
    for target in sorted({edge[0] for edge in after - before}):
        yield f"{_name(key)} has ended and would have to lead to {_name(target)} too"
    for target in sorted({edge[0] for edge in before - after} - {edge[0] for edge in after - before}):
        yield f"{_name(key)} has ended and led to {_name(target)}, and would no longer"


def _out(place: NodeWiring) -> set[tuple[str, str, int]]:
    edges = {(edge.target, edge.kind.value, edge.arm) for edge in place.out}
    inside = [*place.closers, *([place.entry] if place.entry else [])]
    return edges | {(target, NodeKind.EXPAND.value, -1) for target in inside}


def _into(wiring: Wiring) -> dict[str, set[tuple[str, str, int]]]:
    """The same edges by their targets, each with its source."""
    into: dict[str, set[tuple[str, str, int]]] = {}
    for key, place in wiring.places.items():
        for target, kind, arm in _out(place):
            into.setdefault(target, set()).add((key, kind, arm))
    return into


def _targets(place: NodeWiring) -> set[str]:
    return {target for target, _, _ in _out(place)}


def _before(wiring: Wiring) -> dict[str, set[str]]:
    """For each node, the nodes that tell it of their end; a node of an expand or an arm hears of that too."""
    before: dict[str, set[str]] = {}
    for key, place in wiring.places.items():
        for target in _targets(place):
            before.setdefault(target, set()).add(key)
        node = place.node
        around = {*node.scope, *([node.arm[0]] if node.arm is not None else [])}
        before.setdefault(key, set()).update(around)
    return before


def _with_those_before(wiring: Wiring, keys: Iterable[str]) -> set[str]:
    before = _before(wiring)
    found: set[str] = set()
    left = list(keys)
    while left:
        key = left.pop()
        if key not in found:
            found.add(key)
            left.extend(before.get(key, ()))
    return found


def _is_step(wiring: Wiring, key: str) -> bool:
    return key in wiring.places and wiring.places[key].node.kind.is_step


def _name(key: str) -> str:
    if key == END:
        return "the end of the run"
    if key.startswith(CLOSE):
        return f"the end of the expand over {key.removeprefix(CLOSE)}"
    if key.startswith(DOOR):
        return f"what step {key.removeprefix(DOOR).partition('.')[2]!r} uses from outside of its expand"
    return key if key.startswith("@") else f"step {key!r}"


# The dependants of a step: all nodes that use its value, come after it or are chosen by it, to any depth. Pure.


def dependants(wiring: Wiring, key: str) -> Mapping[str, int]:
    """The nodes that depend on this one, each with how much of the path they have in common.

    As long as that is the whole path of the step, an element depends on the step of the same element alone. Behind a
    collapse it is less: then it depends on all of those whose paths begin so.
    """
    nodes = wiring.definition.by_key
    found = {key: nodes[key].depth} if key in nodes else {}
    for name in wiring.order:
        shared = [found[source] for source in _sources(nodes[name]) if source in found]
        if shared and name != key:
            found[name] = min(*shared, nodes[name].depth)
    found.pop(key, None)
    return found


def _sources(node: Node) -> set[str]:
    """The nodes that this node itself depends on.

    That a value from outside holds up a whole expand does not make every step inside depend on it.
    """
    sources = {*node.reads, *node.after, *node.scope}
    if node.arm is not None:
        sources.add(node.arm[0])
    if node.kind is NodeKind.MERGE:
        sources.add(node.target)
    return sources
