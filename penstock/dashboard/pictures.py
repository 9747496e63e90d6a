"""Draws the data of pages for templates: the same mappings that the JSON twin of a page has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.dashboard.drawing.charts_svg import ChartBar, draw_bars, draw_line, draw_sparkline, nice_top
from penstock.dashboard.drawing.definition_graph import DefinitionGraph, DrawnEdge, DrawnNode
from penstock.dashboard.drawing.graph_svg import NodeState, draw_graph
from penstock.dashboard.drawing.svg import Svg
from penstock.dashboard.drawing.timeline_svg import (
    SECOND,
    TimelineSpan,
    draw_axis,
    draw_patterns,
    draw_row,
    lasted,
    timeline_axis,
)

Data = Mapping[str, Any]


def graph_picture(graph: Data, icons: str, here: Callable[..., str] | None = None) -> Svg:
    """The picture of a graph. Its nodes are links to this page with the step chosen, and its child run opened."""
    nodes = [
        DrawnNode(one["key"], one["kind"], one["label"], one["detail"], tuple(one["inside"]))
        for one in graph["nodes"]
    ]
    edges = [DrawnEdge(one["source"], one["target"], one["label"], one["order"]) for one in graph["edges"]]
    scopes = {key: _title(scope) for key, scope in graph["scopes"].items()}
    drawn = DefinitionGraph(graph["name"], tuple(nodes), tuple(edges), scopes)
    if not graph["is_run"]:
        return draw_graph(drawn, None, icons=icons)
    states = {
        one["key"]: NodeState(one["counts"], one["more"], href=None if here is None else _link(one, here))
        for one in graph["nodes"]
    }
    return draw_graph(drawn, states, icons=icons)


def timeline_picture(rows: Sequence[Data]) -> dict[str, object]:
    """The scale, the patterns, and a bar for each row."""
    spans = [[_span(one) for one in row["spans"]] for row in rows]
    axis = timeline_axis(spans)
    return {
        "axis": draw_axis(axis),
        "patterns": draw_patterns(),
        "bars": [draw_row(axis, row) for row in spans],
    }


def top_of(values: Sequence[float | None]) -> float:
    """The end of the scale on which a chart shows these values."""
    return nice_top(max([value for value in values if value is not None], default=0.0))


def bars_picture(name: str, bars: Sequence[Data], series: Sequence[str]) -> Svg:
    """Stacked bars: each has a `label` and `values` by series."""
    return draw_bars(name, [ChartBar(bar["label"], bar["values"]) for bar in bars], series)


def lasted_between(start: str, end: str) -> str:
    """The time from one instant to another."""
    return lasted(max(_micros(end) - _micros(start), 0) / SECOND)


def _link(node: Data, here: Callable[..., str]) -> str:
    fresh = {"path": None, "after": None, "state": None}
    if node["child"] is not None:
        return f"{here(step=node['key'], open=node['child'], **fresh)}#opened"
    return f"{here(step=node['key'], open=None, **fresh)}#step"


def _title(scope: Data) -> str:
    if scope["elements"] is None:
        return str(scope["title"])
    return f"{scope['title']} · {scope['ended']:,} of {scope['elements']:,} ended"


def _span(span: Data) -> TimelineSpan:
    return TimelineSpan(span["kind"], _micros(span["start_at"]), _micros(span["end_at"]), span["label"])


def _micros(text: str) -> int:
    """The microseconds of an instant in ISO 8601; 0 if the text is not an instant."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return int(moment.astimezone(UTC).timestamp() * 1_000_000)


PICTURES: dict[str, object] = {
    "graph_picture": graph_picture,
    "timeline_picture": timeline_picture,
    "bars_picture": bars_picture,
    "line_picture": draw_line,
    "sparkline_picture": draw_sparkline,
    "top_of": top_of,
    "lasted": lasted_between,
}
"""The pictures by the names that templates use."""
