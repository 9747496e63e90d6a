"""Finds places for the nodes of a graph: in layers, so that edges lead one way, and scopes as boxes around their nodes.

Each scope is laid out by itself and is then one large node of the scope around it: a box holds what is inside of it and
nothing else, and no two nodes overlap. A level has its layers by the longest path, the order in them by barycentres,
and its coordinates by least squares under the distances that have to be kept. The same graph gives the same picture.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

GAP_LAYER = 48.0
GAP_SIDE = 22.0
GAP_DUMMY = 10.0
PADDING = 18.0
HEADER = 30.0
SWEEPS = 6
MOST_DUMMIES = 6_000
"""The most points for edges that pass several layers; if more are needed, long edges are drawn straight."""

Scope = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LayoutNode:
    """A node to be placed. `inside` are the scopes around it, outermost first."""

    key: str
    width: float
    height: float
    inside: Scope = ()


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A place in the picture."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: Rectangle) -> bool:
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )

    def holds(self, other: Rectangle) -> bool:
        return (
            self.x <= other.x
            and self.y <= other.y
            and other.x + other.width <= self.x + self.width
            and other.y + other.height <= self.y + self.height
        )


Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """All places. `routes` has, for each edge in the given order, the points it goes through."""

    width: float
    height: float
    across: bool
    """True if edges lead from left to right, else from top to bottom."""
    nodes: Mapping[str, Rectangle]
    boxes: Mapping[Scope, Rectangle]
    routes: tuple[Points, ...]


@dataclass(slots=True)
class _Item:
    """A node or a box at one level; `u` goes along the edges, `v` across them."""

    name: str | Scope
    long: float
    wide: float
    layer: int = 0
    u: float = 0.0
    v: float = 0.0
    """The middle."""


@dataclass(slots=True)
class _Level:
    """One scope: its items, then its dummies, and the edges between items by number."""

    items: list[_Item]
    edges: list[tuple[int, int]]
    rows: list[list[int]] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    chains: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    before: dict[int, list[int]] = field(default_factory=dict)
    after: dict[int, list[int]] = field(default_factory=dict)


def lay_out(
    nodes: Sequence[LayoutNode], edges: Sequence[tuple[str, str]], *, across: bool = True
) -> GraphLayout:
    """Places for these nodes and routes for these edges. Edges from or to unknown nodes lead nowhere."""
    return _Picture(nodes, edges, across).layout()


class _Picture:
    def __init__(self, nodes: Sequence[LayoutNode], edges: Sequence[tuple[str, str]], across: bool) -> None:
        self.nodes = {node.key: node for node in nodes}
        self.given = edges
        self.across = across
        self.levels: dict[Scope, _Level] = {}
        self.sizes: dict[Scope, tuple[float, float]] = {}
        self.numbers: dict[Scope, dict[str | Scope, int]] = {}

    def layout(self) -> GraphLayout:
        self._collect()
        for scope in sorted(self.levels, key=lambda one: (-len(one), one)):
            self._place(scope)
        places: dict[str, Rectangle] = {}
        boxes: dict[Scope, Rectangle] = {}
        self._settle((), 0.0, 0.0, places, boxes)
        width, height = self.sizes[()]
        routes = tuple([self._route(source, target, places, boxes) for source, target in self.given])
        return GraphLayout(width, height, self.across, places, boxes, routes)

    # what there is on each level

    def _collect(self) -> None:
        scopes: dict[Scope, None] = {(): None}
        for node in self.nodes.values():
            for depth in range(1, len(node.inside) + 1):
                scopes[node.inside[:depth]] = None
        self.levels = {scope: _Level([], []) for scope in scopes}
        self.numbers = {scope: {} for scope in scopes}
        for scope in scopes:
            if scope:
                self._add(scope[:-1], scope, 0.0, 0.0)
        for node in self.nodes.values():
            long, wide = (node.width, node.height) if self.across else (node.height, node.width)
            self._add(node.inside, node.key, long, wide)
        for source, target in dict.fromkeys(self.given):
            if (found := self._lifted(source, target)) is not None:
                scope, pair = found
                self.levels[scope].edges.append(pair)

    def _add(self, scope: Scope, name: str | Scope, long: float, wide: float) -> None:
        level = self.levels[scope]
        self.numbers[scope][name] = len(level.items)
        level.items.append(_Item(name, long, wide))

    def _lifted(self, source: str, target: str) -> tuple[Scope, tuple[int, int]] | None:
        """The level at which an edge connects two items, and these items; None: the edge stays inside one item."""
        if source not in self.nodes or target not in self.nodes or source == target:
            return None
        one, other = self.nodes[source].inside, self.nodes[target].inside
        depth = 0
        while depth < min(len(one), len(other)) and one[depth] == other[depth]:
            depth += 1
        scope = one[:depth]
        first: str | Scope = one[: depth + 1] if len(one) > depth else source
        second: str | Scope = other[: depth + 1] if len(other) > depth else target
        numbers = self.numbers[scope]
        pair = (numbers[first], numbers[second])
        return (scope, pair) if pair[0] != pair[1] else None

    # one level

    def _place(self, scope: Scope) -> None:
        level = self.levels[scope]
        for item in level.items:
            if isinstance(item.name, tuple):
                width, height = self.sizes[item.name]
                item.long, item.wide = (width, height) if self.across else (height, width)
        level.edges = _forward(level)
        _add_dummies(level)
        _order(level)
        long = _along(level)
        wide = _across(level)
        width, height = (long, wide) if self.across else (wide, long)
        if scope:
            width, height = width + 2 * PADDING, height + PADDING + HEADER
        self.sizes[scope] = (round(width + 0.05, 1), round(height + 0.05, 1))

    def _settle(
        self, scope: Scope, x: float, y: float, places: dict[str, Rectangle], boxes: dict[Scope, Rectangle]
    ) -> None:
        """The places of a level whose upper left corner is known, and of all levels inside."""
        for item in self.levels[scope].items:
            left, top = (item.u, item.v - item.wide / 2) if self.across else (item.v - item.wide / 2, item.u)
            width, height = (item.long, item.wide) if self.across else (item.wide, item.long)
            place = Rectangle(round(x + left, 2), round(y + top, 2), width, height)
            if isinstance(item.name, str):
                places[item.name] = place
            elif item.name:
                boxes[item.name] = place
                self._settle(item.name, place.x + PADDING, place.y + HEADER, places, boxes)

    # edges

    def _route(
        self, source: str, target: str, places: Mapping[str, Rectangle], boxes: Mapping[Scope, Rectangle]
    ) -> Points:
        found = self._lifted(source, target)
        if found is None:
            return ()
        scope, (first, second) = found
        level = self.levels[scope]
        origin_u, origin_v = self._origin(scope, boxes)
        start, end = self._ends(places[source]), self._ends(places[target])
        points = [(start[1], start[2])]
        if level.items[second].layer > level.items[first].layer:
            points.append((origin_u + level.ends[level.items[first].layer], start[2]))
            for dummy in level.chains.get((first, second), ()):
                item = level.items[dummy]
                points += [
                    (origin_u + level.starts[item.layer], origin_v + item.v),
                    (origin_u + level.ends[item.layer], origin_v + item.v),
                ]
            points.append((origin_u + level.starts[level.items[second].layer], end[2]))
        points.append((end[0], end[2]))
        return tuple([point if self.across else (point[1], point[0]) for point in dict.fromkeys(points)])

    def _origin(self, scope: Scope, boxes: Mapping[Scope, Rectangle]) -> tuple[float, float]:
        if not scope:
            return 0.0, 0.0
        x, y = boxes[scope].x + PADDING, boxes[scope].y + HEADER
        return (x, y) if self.across else (y, x)

    def _ends(self, place: Rectangle) -> tuple[float, float, float]:
        """Where edges come in, where they go out, and the middle of the sides there."""
        if self.across:
            return place.x, place.x + place.width, place.y + place.height / 2
        return place.y, place.y + place.height, place.x + place.width / 2


def _forward(level: _Level) -> list[tuple[int, int]]:
    """Give every item its layer, by the longest path; returns the edges that lead forward (in a cycle, not all do)."""
    edges = list(dict.fromkeys(level.edges))
    order = _sorted_by_edges(len(level.items), edges)
    rank = {number: position for position, number in enumerate(order)}
    forward = [(source, target) for source, target in edges if rank[source] < rank[target]]
    out: dict[int, list[int]] = {}
    fed: set[int] = set()
    for source, target in forward:
        out.setdefault(source, []).append(target)
        fed.add(target)
    for number in order:
        for target in out.get(number, ()):
            level.items[target].layer = max(level.items[target].layer, level.items[number].layer + 1)
    for number in reversed(order):
        if (
            number not in fed and number in out
        ):  # a node without inputs stands right before the first node that needs it
            level.items[number].layer = min([level.items[target].layer for target in out[number]]) - 1
    return forward


def _sorted_by_edges(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    waiting = [0] * count
    out: dict[int, list[int]] = {}
    for source, target in edges:
        waiting[target] += 1
        out.setdefault(source, []).append(target)
    order: list[int] = []
    done = [False] * count
    ready = deque([number for number in range(count) if not waiting[number]])
    lowest = 0
    while len(order) < count:
        if not ready:
            while done[lowest]:
                lowest += 1
            ready.append(lowest)
        number = ready.popleft()
        if done[number]:
            continue
        done[number] = True
        order.append(number)
        for target in out.get(number, ()):
            waiting[target] -= 1
            if not waiting[target] and not done[target]:
                ready.append(target)
    return order


def _add_dummies(level: _Level) -> None:
    """Add a point in every layer that an edge passes, so that the edge goes around the nodes there."""
    last = max([item.layer for item in level.items], default=-1)
    level.rows = [[] for _ in range(last + 1)]
    for number, item in enumerate(level.items):
        level.rows[item.layer].append(number)
    left = MOST_DUMMIES
    for source, target in level.edges:
        chain = [source]
        passed = range(level.items[source].layer + 1, level.items[target].layer)
        if len(passed) <= left:
            left -= len(passed)
            for layer in passed:
                chain.append(len(level.items))
                level.rows[layer].append(len(level.items))
                level.items.append(_Item((), 0.0, GAP_DUMMY, layer))
            level.chains[source, target] = chain[1:]
        chain.append(target)
        for one, other in itertools.pairwise(chain):
            level.after.setdefault(one, []).append(other)
            level.before.setdefault(other, []).append(one)


def _order(level: _Level) -> None:
    """Sort every layer by the mean place of its neighbours, forth and back."""
    places = {number: float(place) for row in level.rows for place, number in enumerate(row)}

    def sort(row: list[int], neighbours: Mapping[int, Sequence[int]]) -> None:
        wanted = {}
        for number in row:
            near = neighbours.get(number)
            wanted[number] = sum([places[one] for one in near]) / len(near) if near else places[number]
        row.sort(key=wanted.__getitem__)
        for place, number in enumerate(row):
            places[number] = float(place)

    for _ in range(SWEEPS):
        for row in level.rows[1:]:
            sort(row, level.before)
        for row in reversed(level.rows[:-1]):
            sort(row, level.after)


def _along(level: _Level) -> float:
    """Set the coordinate along the edges, layer by layer; returns the length of the whole."""
    at = 0.0
    for row in level.rows:
        thickness = max([level.items[number].long for number in row], default=0.0)
        level.starts.append(at)
        level.ends.append(at + thickness)
        for number in row:
            item = level.items[number]
            item.u = at + (thickness - item.long) / 2
        at += thickness + GAP_LAYER
    return max(at - GAP_LAYER, 0.0)


def _across(level: _Level) -> float:
    """Set the coordinate across the edges, as near to the neighbours as distances allow; returns the width of the
    whole."""
    for row in level.rows:
        _set(level, row, [0.0] * len(row))
    for _ in range(SWEEPS):
        for row in level.rows[1:]:
            _set(level, row, [_mean(level, level.before.get(number), number) for number in row])
        for row in reversed(level.rows[:-1]):
            _set(level, row, [_mean(level, level.after.get(number), number) for number in row])
    lowest = min([item.v - item.wide / 2 for item in level.items], default=0.0)
    for item in level.items:
        item.v -= lowest
    return max([item.v + item.wide / 2 for item in level.items], default=0.0)


def _mean(level: _Level, near: Sequence[int] | None, number: int) -> float:
    return sum([level.items[one].v for one in near]) / len(near) if near else level.items[number].v


def _set(level: _Level, row: Sequence[int], wanted: Sequence[float]) -> None:
    """The places nearest to the wanted ones, in the same order and with the distances kept: an isotonic regression."""
    offsets, at = [], 0.0
    for place, number in enumerate(row):
        if place:
            one, other = level.items[row[place - 1]], level.items[number]
            gap = GAP_SIDE if one.long or other.long else GAP_DUMMY
            at += (one.wide + other.wide) / 2 + gap
        offsets.append(at)
    blocks: list[tuple[float, int]] = []
    for value, offset in zip(wanted, offsets, strict=True):
        total, count = value - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            before, size = blocks.pop()
            total, count = total + before, count + size
        blocks.append((total, count))
    place = 0
    for total, count in blocks:
        for _ in range(count):
            level.items[row[place]].v = total / count + offsets[place]
            place += 1
