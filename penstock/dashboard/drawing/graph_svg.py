"""Draws a graph as SVG: each node with its state as colour, icon and words, expands as boxes, switches with their arms.

A node is a link and says its state in its label, so that a keyboard and a screen reader get all that the picture shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.dashboard.drawing.definition_graph import (
    JUNCTION,
    SWITCH,
    DefinitionGraph,
    DrawnEdge,
    DrawnNode,
)
from penstock.dashboard.drawing.graph_layout import GraphLayout, LayoutNode, Points, Rectangle, lay_out
from penstock.dashboard.drawing.svg import Svg, element, joined, number, shortened
from penstock.values.plain import counted

MARGIN = 14.0
HEIGHT = 56.0
NARROWEST, WIDEST = 196.0, 248.0
CHARACTER = 7.4
"""A generous mean width of a character of the label, in pixels."""
SMALL_CHARACTER = 6.1
AROUND_LABEL = 54.0
JUNCTION_SIZE = 12.0
SWITCH_HEIGHT = 34.0
TITLE_HEIGHT = 22.0
TITLE_INDENT = 14.0
DEEPEST_ACROSS = 7
"""A graph with more layers is drawn from top to bottom: it fits on the page without scrolling sideways."""
UNREACHED = "unreached"
LEADING = ("running", "failed", "waiting", "available", "scheduled", "cancelled", "succeeded", "skipped")
ENDED = ("succeeded", "failed", "cancelled", "skipped")
WORDS = {UNREACHED: "not reached", "available": "ready"}


@dataclass(frozen=True, slots=True)
class NodeState:
    """The counts of a node's steps by status. `more`: the counts were capped, so there are at least so many."""

    counts: Mapping[str, int] = field(default_factory=dict)
    more: bool = False
    note: str = ""
    """A short remark, such as until when the node waits."""
    href: str | None = None

    @property
    def status(self) -> str:
        """The status that is shown for all steps: one that runs, then one that failed, then one that is still to
        come."""
        return next((status for status in LEADING if self.counts.get(status)), UNREACHED)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def words(self) -> str:
        """The state in a few words."""
        if self.total <= 1 and not self.more:
            return WORDS.get(self.status, self.status)
        ended = sum([self.counts.get(status, 0) for status in ENDED])
        told = f"{ended:,} of {self.total:,}{'+' if self.more else ''}"
        failed = self.counts.get("failed", 0)
        return f"{told} · {failed:,} failed" if failed else told

    @property
    def sentence(self) -> str:
        """The state for a screen reader: every count."""
        if self.total <= 1 and not self.more:
            return self.words
        at_least = "at least " if self.more else ""
        return at_least + ", ".join([f"{count:,} {status}" for status, count in self.counts.items() if count])


def draw_graph(
    graph: DefinitionGraph,
    states: Mapping[str, NodeState] | None = None,
    *,
    icons: str = "",
    scopes: Mapping[str, str] | None = None,
    across: bool | None = None,
) -> Svg:
    """The picture. Without `states` it is that of a definition, else that of a run.

    `icons` is the address of the file of icons; `scopes` says more about expands, such as how many elements there are.
    """
    nodes = _sized(graph)
    edges = [(edge.source, edge.target) for edge in graph.edges]
    layout = lay_out(nodes, edges, across=True if across is None else across)
    if across is None and _is_deep(layout, len(graph.nodes)):
        layout = lay_out(nodes, edges, across=False)
    drawing = _Drawing(graph, states, icons, scopes or {}, layout)
    return drawing.draw()


def _is_deep(layout: GraphLayout, count: int) -> bool:
    return count > DEEPEST_ACROSS and layout.width > 3 * layout.height and layout.width > 1_400


def _sized(graph: DefinitionGraph) -> list[LayoutNode]:
    longest = max([len(node.label) for node in graph.nodes if node.kind != JUNCTION], default=0)
    width = min(max(longest * CHARACTER + AROUND_LABEL, NARROWEST), WIDEST)
    sizes = {JUNCTION: (JUNCTION_SIZE, JUNCTION_SIZE), SWITCH: (104.0, SWITCH_HEIGHT)}
    return [LayoutNode(node.key, *sizes.get(node.kind, (width, HEIGHT)), node.inside) for node in graph.nodes]


@dataclass(frozen=True, slots=True)
class _Drawing:
    graph: DefinitionGraph
    states: Mapping[str, NodeState] | None
    icons: str
    scopes: Mapping[str, str]
    layout: GraphLayout

    def draw(self) -> Svg:
        layout = self.layout
        width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
        steps = sum([node.kind not in (JUNCTION, SWITCH) for node in self.graph.nodes])
        return element(
            "svg",
            element("title", f"{self.graph.name}: {counted(steps, 'step')}"),
            element("desc", self._description()),
            element("g", *[self._box(scope) for scope in sorted(layout.boxes)], class_="graph-boxes"),
            element(
                "g",
                *[self._edge(*pair) for pair in zip(self.graph.edges, layout.routes, strict=True)],
                class_="graph-edges",
                aria_hidden="true",
            ),
            element("g", *[self._box_title(scope) for scope in sorted(layout.boxes)]),
            element("g", *[self._node(node) for node in self.graph.nodes], class_="graph-nodes"),
            xmlns="http://www.w3.org/2000/svg",
            class_="graph",
            role="group",
            viewBox=f"0 0 {number(width)} {number(height)}",
            width=width,
            height=height,
        )

    def _description(self) -> str:
        if self.states is None:
            return "Each box is a step; arrows lead from a step to those that come after it."
        told: dict[str, int] = {}
        for node in self.graph.nodes:
            if node.kind not in (JUNCTION, SWITCH):
                status = self._state(node.key).status
                told[status] = told.get(status, 0) + 1
        return ", ".join([f"{count} {WORDS.get(status, status)}" for status, count in sorted(told.items())])

    def _state(self, key: str) -> NodeState:
        return (self.states or {}).get(key) or NodeState()

    def _box(self, scope: tuple[str, ...]) -> Svg:
        return element("g", _rectangle(self.layout.boxes[scope], "scope-box", 12.0), class_="scope")

    def _box_title(self, scope: tuple[str, ...]) -> Svg:
        """Draw the title on the upper side of a box; edges that come in there pass behind it."""
        place = self.layout.boxes[scope]
        title = self.scopes.get(scope[-1]) or self.graph.scopes.get(scope[-1], scope[-1])
        shown = shortened(title, max(int((place.width - 2 * TITLE_INDENT - 36) / SMALL_CHARACTER), 4))
        left, top = place.x + TITLE_INDENT, place.y - TITLE_HEIGHT / 2
        plate = Rectangle(left, top, len(shown) * SMALL_CHARACTER + 36, TITLE_HEIGHT)
        return element(
            "g",
            element("title", title),
            _rectangle(plate, "scope-plate", TITLE_HEIGHT / 2),
            self._icon("expand", left + 8, top + 4, 14.0),
            element("text", shown, x=left + MARGIN + 27, y=top + MARGIN + 15, class_="scope-title"),
        )

    def _edge(self, edge: DrawnEdge, route: Points) -> Svg:
        if len(route) < 2:
            return Svg()
        done = self._state(edge.source).status == "succeeded"
        classes = ["edge", "is-order" if edge.order else "", "is-done" if done else ""]
        parts = [element("path", d=_curve(route, self.layout.across), class_="edge-line")]
        if not edge.target.startswith("@") or edge.target.startswith("@switch"):
            parts.append(element("path", d=_arrow(route[-1], self.layout.across), class_="edge-arrow"))
        if edge.label:
            parts.append(self._edge_label(edge.label, route))
        return element("g", *parts, class_=" ".join([one for one in classes if one]))

    def _edge_label(self, label: str, route: Points) -> Svg:
        """Draw the label of an arm near the switch, beside the line."""
        shown = shortened(label, 14)
        x, y = route[0]
        side = 1 if self.layout.across else 0
        nx, ny = next((point for point in route if point[side] != route[0][side]), route[-1])
        middle = (x * 0.45 + nx * 0.55 + MARGIN, y * 0.45 + ny * 0.55 + MARGIN)
        width = len(shown) * 6.4 + 12
        return element(
            "g",
            element("title", label),
            _rectangle(
                Rectangle(middle[0] - width / 2 - MARGIN, middle[1] - 9 - MARGIN, width, 18), "label-box", 9.0
            ),
            element("text", shown, x=middle[0], y=middle[1] + 4, text_anchor="middle", class_="label-text"),
            class_="edge-label",
        )

    def _node(self, node: DrawnNode) -> Svg:
        place = self.layout.nodes[node.key]
        if node.kind == JUNCTION:
            return self._junction(node, place)
        if node.kind == SWITCH:
            return self._switch(node, place)
        state = self._state(node.key)
        status = state.status if self.states is not None else "defined"
        said = f"{node.label}: {state.sentence}" if self.states is not None else node.label
        told = ", ".join([part for part in (said, node.detail, state.note) if part])
        body = element("g", *self._body(node, state, place), class_=f"node is-{status} kind-{node.kind}")
        if state.href is None:
            return element("g", element("title", told), body, class_="node-plain")
        return element(
            "a", element("title", told), body, href=state.href, class_="node-link", aria_label=told
        )

    def _body(self, node: DrawnNode, state: NodeState, place: Rectangle) -> list[Svg]:
        run = self.states is not None
        icon = (state.status if run else node.kind) if node.kind == "task" or state.total else node.kind
        second = state.words if run else node.detail
        if run and state.note:
            second = f"{second} · {state.note}" if second else state.note
        x, y = place.x + MARGIN, place.y + MARGIN
        room = int((place.width - AROUND_LABEL + 12) / CHARACTER)
        parts = [_rectangle(place, "node-box", 10.0)]
        if node.kind == "child":
            parts.insert(
                0,
                _rectangle(
                    Rectangle(place.x + 4, place.y + 4, place.width, place.height), "node-shadow", 10.0
                ),
            )
        parts += [
            self._icon(icon, place.x + 13, place.y + (place.height - 18) / 2, 18.0, "node-icon"),
            element("text", shortened(node.label, room), x=x + 42, y=y + 24, class_="node-label"),
            element(
                "text",
                shortened(second, int((place.width - AROUND_LABEL) / SMALL_CHARACTER)),
                x=x + 42,
                y=y + 42,
                class_="node-state",
            ),
        ]
        if node.kind in ("wait", "child"):
            parts.append(self._icon(node.kind, place.x + place.width - 22, place.y + 8, 12.0, "node-kind"))
        return parts + (_bar(state, place) if run and state.total > 1 else [])

    def _junction(self, node: DrawnNode, place: Rectangle) -> Svg:
        x, y = place.x + place.width / 2 + MARGIN, place.y + place.height / 2 + MARGIN
        return element(
            "g",
            element("title", node.label),
            element("circle", cx=x, cy=y, r=JUNCTION_SIZE / 2, class_="junction-dot"),
            class_="junction",
        )

    def _switch(self, node: DrawnNode, place: Rectangle) -> Svg:
        return element(
            "g",
            element("title", f"{node.label}, {node.detail}"),
            _rectangle(place, "switch-box", SWITCH_HEIGHT / 2),
            self._icon("switch", place.x + 14, place.y + 10, 14.0, "node-icon"),
            element(
                "text", "switch", x=place.x + MARGIN + 36, y=place.y + MARGIN + 22, class_="switch-label"
            ),
            class_="switch",
        )

    def _icon(self, name: str, x: float, y: float, size: float, class_: str = "graph-icon") -> Svg:
        address = f"{self.icons}#{name}"
        return element(
            "use", href=address, x=x + MARGIN, y=y + MARGIN, width=size, height=size, class_=class_
        )


def _rectangle(place: Rectangle, class_: str, radius: float) -> Svg:
    return element(
        "rect",
        x=place.x + MARGIN,
        y=place.y + MARGIN,
        width=place.width,
        height=place.height,
        rx=radius,
        class_=class_,
    )


def _bar(state: NodeState, place: Rectangle) -> list[Svg]:
    """A bar at the foot of a node: the share of each status."""
    left, width, y = place.x + MARGIN + 10, place.width - 20, place.y + place.height + MARGIN - 7
    parts = [element("rect", x=left, y=y, width=width, height=3.0, rx=1.5, class_="node-track")]
    at = left
    for status in ("succeeded", "failed", "cancelled", "skipped", "running"):
        share = width * state.counts.get(status, 0) / max(state.total, 1)
        if share > 0:
            parts.append(
                element("rect", x=at, y=y, width=max(share, 0.5), height=3.0, class_=f"fill-{status}")
            )
            at += share
    return [element("g", joined(parts), class_="node-bar", aria_hidden="true")]


def _curve(route: Points, across: bool) -> str:
    """A smooth line through the points, which leaves and comes in along the direction of the edges."""
    x, y = route[0]
    told = [f"M{number(x + MARGIN)} {number(y + MARGIN)}"]
    for nx, ny in route[1:]:
        if (across and y == ny) or (not across and x == nx):
            told.append(f"L{number(nx + MARGIN)} {number(ny + MARGIN)}")
        else:
            mx, my = (x + nx) / 2 + MARGIN, (y + ny) / 2 + MARGIN
            first = (mx, y + MARGIN) if across else (x + MARGIN, my)
            second = (mx, ny + MARGIN) if across else (nx + MARGIN, my)
            points = [*first, *second, nx + MARGIN, ny + MARGIN]
            told.append("C" + " ".join([number(one) for one in points]))
        x, y = nx, ny
    return "".join(told)


def _arrow(end: tuple[float, float], across: bool) -> str:
    x, y = end[0] + MARGIN, end[1] + MARGIN
    corners = ((-7, -4), (0, 0), (-7, 4)) if across else ((-4, -7), (0, 0), (4, -7))
    points = [f"{number(x + dx)} {number(y + dy)}" for dx, dy in corners]
    return f"M{points[0]}L{points[1]}L{points[2]}z"
