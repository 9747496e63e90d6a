"""dashboard/drawing: Graphs, timelines and charts as SVG: well-formed whatever names hold, nothing overlaps, the
same each time.
"""

import time
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock import Penstock
from penstock.dashboard.drawing.charts_svg import ChartBar, draw_bars, draw_line, draw_sparkline, nice_top
from penstock.dashboard.drawing.definition_graph import (
    JUNCTION,
    SWITCH,
    DefinitionGraph,
    DrawnEdge,
    DrawnNode,
    definition_graph,
)
from penstock.dashboard.drawing.graph_layout import GraphLayout, LayoutNode, lay_out
from penstock.dashboard.drawing.graph_svg import NodeState, draw_graph
from penstock.dashboard.drawing.svg import Svg, element
from penstock.dashboard.drawing.timeline_svg import (
    SECOND,
    TimelineSpan,
    draw_axis,
    draw_patterns,
    draw_row,
    lasted,
    timeline_axis,
)
from penstock.dashboard.render import dotted, rate, span, ticked
from penstock.pipelines.model.definition import Definition

HOSTILE = "<script>alert(1)</script>\"'& \x00\x1b\u202e]]>" + "\ud800"


def parsed(svg: Svg) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[LayoutNode], list[tuple[str, str]]]:
    """Graphs with nested scopes; now and then with a cycle, which no definition has and a damaged row may."""
    count = draw(st.integers(0, 24))
    scopes = draw(st.lists(st.sampled_from([(), ("a",), ("a", "b"), ("c",)]), min_size=count, max_size=count))
    nodes = [LayoutNode(f"n{at}", 100.0 + at, 40.0, scope) for at, scope in enumerate(scopes)]
    ends = st.integers(0, max(count - 1, 0))
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=40)) if count else []
    back = draw(st.booleans())
    edges = [(f"n{one}", f"n{other}") for one, other in pairs if one < other or back]
    return nodes, edges


def check(nodes: list[LayoutNode], layout: GraphLayout) -> None:
    places = list(layout.nodes.items())
    assert len(places) == len(nodes)
    for at, (_, one) in enumerate(places):
        assert 0 <= one.x <= one.x + one.width <= layout.width + 0.01
        assert 0 <= one.y <= one.y + one.height <= layout.height + 0.01
        assert not any(one.overlaps(other) for _, other in places[at + 1 :])
    for node in nodes:
        for scope, box in layout.boxes.items():
            inside = node.inside[: len(scope)] == scope
            place = layout.nodes[node.key]
            assert box.holds(place) if inside else not box.overlaps(place)


@settings(max_examples=60, deadline=None)
@given(graphs(), st.booleans())
def test_no_nodes_overlap_and_boxes_hold_exactly_their_own(
    graph: tuple[list[LayoutNode], list[tuple[str, str]]], across: bool
) -> None:
    nodes, edges = graph
    layout = lay_out(nodes, edges, across=across)
    check(nodes, layout)
    assert layout == lay_out(nodes, edges, across=across)
    assert len(layout.routes) == len(edges)


def test_edges_lead_one_way() -> None:
    nodes = [LayoutNode(key, 100, 40) for key in "abcde"]
    edges = [("a", "b"), ("b", "c"), ("a", "c"), ("d", "c"), ("c", "e")]
    layout = lay_out(nodes, edges)
    for (source, target), route in zip(edges, layout.routes, strict=True):
        assert layout.nodes[source].x + 100 < layout.nodes[target].x
        assert [x for x, _ in route] == sorted(x for x, _ in route)
    assert layout.nodes["d"].x == layout.nodes["b"].x, (
        "a beginning stands right before the node that needs it"
    )


@pytest.mark.parametrize("count", [500, 2000])
def test_large_graphs_are_laid_out_quickly(count: int) -> None:
    nodes = [LayoutNode(f"n{at}", 160, 50) for at in range(count)]
    edges = [(f"n{at // 3}", f"n{at}") for at in range(1, count)]
    edges += [(f"n{at}", f"n{at + 7}") for at in range(0, count - 7, 11)]
    started = time.process_time()
    layout = lay_out(nodes, edges)
    assert time.process_time() - started < 2, (
        "of processor time; some 50 ms for 500 nodes, on a quiet machine"
    )
    assert len(layout.nodes) == count


@pytest.fixture
def definition() -> Definition:
    app = Penstock("sqlite://")

    @app.task
    def find(days: int) -> list[int]:
        return [days]

    @app.task
    def load(user: int) -> int:
        return user

    @app.task
    def fetch(user: int) -> int:
        return user

    @app.task
    def report(*values: object) -> Any:
        return ""

    @app.pipeline
    def inner(value: object) -> object:
        return report(value)

    @app.pipeline
    def enrich(days: int) -> object:
        user = load.map(find(days))
        done = report(fetch(user), fetch(user))
        told = report(done.collect())
        sure = penstock.wait_for("approve", timeout=60, default="no")
        way = penstock.switch(told, {"x": report, "y": None}, otherwise=fetch)
        return inner(report(way, sure))

    return enrich.definition


def test_a_definition_is_drawn_as_steps_and_switches(definition: Definition) -> None:
    graph = definition_graph(definition)
    kinds = {node.key: node.kind for node in graph.nodes}
    assert set(kinds.values()) == {"task", "wait", "child", SWITCH}
    edges = {(edge.source, edge.target): edge.label for edge in graph.edges}
    assert ("find", "load") in edges, "the expand is seen through"
    (switch,) = [key for key, kind in kinds.items() if kind == SWITCH]
    labels = {label for (source, _), label in edges.items() if source == switch}
    assert labels == {"x", "y", "otherwise"}
    assert not [pair for pair in edges if pair[0] == "report_2" and pair[1] != switch], (
        "once, through the switch"
    )
    root = parsed(draw_graph(graph, {}))
    assert "steps" in (root.findtext("{*}title") or "")
    assert any("for each element" in (text.text or "") for text in root.findall(".//{*}text"))


def test_a_barrier_of_many_steps_is_a_junction() -> None:
    app = Penstock("sqlite://")

    @app.task
    def step() -> None: ...

    @app.pipeline
    def wide() -> None:
        first = [step() for _ in range(20)]
        gate = penstock.barrier(*first)
        for _ in range(20):
            step.options(after=[gate])()

    graph = definition_graph(wide.definition)
    assert [node.kind for node in graph.nodes].count(JUNCTION) == 1
    assert len(graph.edges) == 40


def test_states_are_colour_icon_and_words(definition: Definition) -> None:
    states = {
        "find": NodeState({"succeeded": 1}, href="?step=find"),
        "load": NodeState({"succeeded": 612, "failed": 3, "running": 4, "available": 381}, href="?step=load"),
        "fetch": NodeState({"running": 2000}, more=True),
    }
    svg = draw_graph(definition_graph(definition), states, icons="/icons.svg")
    root = parsed(svg)
    links = {link.get("href"): link.get("aria-label") for link in root.findall(".//{*}a")}
    assert str(links["?step=find"]).startswith("find: succeeded")
    assert "612 succeeded, 3 failed, 4 running" in str(links["?step=load"])
    assert 'class="node is-running kind-task"' in svg
    assert "/icons.svg#succeeded" in svg
    assert "615 of 1,000 · 3 failed" in svg
    assert "0 of 2,000+" in svg
    assert "fill-failed" in svg


def test_names_are_escaped() -> None:
    node = DrawnNode(HOSTILE, "task", HOSTILE, HOSTILE, (HOSTILE,))
    other = DrawnNode("b", SWITCH, HOSTILE, "", ())
    graph = DefinitionGraph(HOSTILE, (node, other), (DrawnEdge("b", HOSTILE, HOSTILE),), {HOSTILE: HOSTILE})
    states = {HOSTILE: NodeState({"failed": 1}, note=HOSTILE, href=f"javascript:{HOSTILE}")}
    span = TimelineSpan("crashed", 0, 5, HOSTILE)
    bars = [ChartBar(HOSTILE, {HOSTILE: 1})]
    drawings = [
        draw_graph(graph, states, icons="/i.svg", scopes={HOSTILE: HOSTILE}),
        draw_row(timeline_axis([[span]]), [span]),
        draw_bars(HOSTILE, bars, [HOSTILE]),
        draw_line(HOSTILE, [1.0]),
        draw_sparkline(HOSTILE, [1.0]),
        element("text", HOSTILE, title=HOSTILE),
    ]
    for drawing in drawings:
        assert "<script" not in drawing
        assert "\u202e" not in drawing
        parsed(drawing)


def test_attempts_are_told_apart_on_the_timeline() -> None:
    spans = [
        TimelineSpan("waiting", 0, 2 * SECOND),
        TimelineSpan("crashed", 2 * SECOND, 5 * SECOND, "attempt 1"),
        TimelineSpan("errored", 6 * SECOND, 7 * SECOND, "attempt 2"),
        TimelineSpan("succeeded", 8 * SECOND, 8 * SECOND, "attempt 3"),
    ]
    axis = timeline_axis([spans])
    row = parsed(draw_row(axis, spans))
    told = str(row.get("aria-label"))
    assert "attempt 1: its process died 3 s" in told
    assert "attempt 2: raised an error 1 s" in told
    bars = [bar for bar in row.findall(".//{*}rect") if bar.get("class", "").startswith("span ")]
    assert [bar.get("fill") for bar in bars] == [None, "url(#pattern-crashed)", None, None]
    widths = [float(str(bar.get("width")).rstrip("%")) for bar in bars]
    assert widths[0] == pytest.approx(25)
    assert widths[3] > 0, "a span without length is seen"
    assert all(
        float(str(bar.get("x")).rstrip("%")) + width <= 100.01
        for bar, width in zip(bars, widths, strict=True)
    )
    assert 2 <= len(axis.ticks) <= 9
    parsed(draw_axis(axis))
    parsed(draw_patterns())
    parsed(draw_row(timeline_axis([]), []))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0"), (0.0305, "30.5 ms"), (2.5, "2.5 s"), (65, "1 m 5 s"), (7200, "2 h"), (200_000, "2 d 7 h")],
)
def test_durations_are_short(seconds: float, words: str) -> None:
    assert lasted(seconds) == words


@given(st.lists(st.integers(0, 10**15), max_size=6), st.integers(0, 10**13))
@settings(max_examples=50, deadline=None)
def test_an_axis_has_few_ticks_inside_of_it(starts: list[int], length: int) -> None:
    axis = timeline_axis([[TimelineSpan("running", start, start + length) for start in starts]])
    assert len(axis.ticks) <= 9
    assert all(0 <= percent <= 100.001 for percent, _ in axis.ticks)


def test_charts_say_their_figures() -> None:
    bars = [ChartBar("12:00", {"succeeded": 90, "failed": 10}), ChartBar("12:01", {"succeeded": 40})]
    svg = draw_bars("Throughput", bars, ["succeeded", "failed"])
    assert parsed(svg).get("aria-label") == "Throughput: 130 succeeded, 10 failed"
    assert "12:00: 90 succeeded, 10 failed" in svg
    line = parsed(draw_line("Lag", [1.0, None, 3.5, 2.0], unit=" s"))
    assert len(list(line.findall(".//{*}polyline"))) == 2, "a gap parts the line"
    assert line.get("aria-label") == "Lag: at most 3.5 s, last 2 s"
    assert "no figures yet" in draw_line("Lag", [])
    assert "no figures" in draw_bars("Throughput", [], [])
    parsed(draw_sparkline("Runs", [0, 1, 5]))


@pytest.mark.parametrize(
    ("most", "top"), [(0, 1), (0.3, 0.5), (1, 1), (7, 10), (23, 25), (100, 100), (101, 200)]
)
def test_scales_end_at_round_numbers(most: float, top: float) -> None:
    assert nice_top(most) == pytest.approx(top)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0, "0"), (0.0001, "<1 ms"), (0.35, "350 ms"), (4.2, "4.2 s"), (None, "")]
)
def test_a_length_of_time_in_words(seconds: float | None, words: str) -> None:
    assert span(seconds) == words


def test_backticks_become_code_and_nothing_else_becomes_markup() -> None:
    assert (
        ticked("see `penstock <processes>` & <b>")
        == "see <code>penstock &lt;processes&gt;</code> &amp; &lt;b&gt;"
    )
    assert ticked("one ` alone") == "one ` alone"


def test_a_command_after_a_colon_is_code() -> None:
    told = ticked(
        "Start one: penstock worker MODULE:APP --queues <b>; or see `penstock processes` for a typo."
    )
    start, see = "penstock worker MODULE:APP --queues &lt;b&gt;", "penstock processes"
    assert told == f"Start one: <code>{start}</code>; or see <code>{see}</code> for a typo."
    assert ticked("Run: penstock migrate") == "Run: <code>penstock migrate</code>"
    assert ticked("the penstock worker") == "the penstock worker"


@pytest.mark.parametrize(
    ("per_second", "words"), [(0.0, "0/s"), (0.02, "1.2/min"), (1.0, "1.0/s"), (41_234.5, "41,234.5/s")]
)
def test_a_rate_in_words(per_second: float, words: str) -> None:
    assert rate(per_second) == words


def test_a_long_name_breaks_after_its_dots() -> None:
    assert dotted("shop.<b>.orders") == "shop.<wbr>&lt;b&gt;.<wbr>orders"
