"""Draws the attempts of a run over time: a row for each step, in which waiting, running and each kind of end differ.

Bars stand in percent of their row, so that a page of any width shows them sharply; the label of a row stands beside it.
Every kind of span has a colour, a pattern or shape of its own, and words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.dashboard.drawing.svg import Svg, element

SECOND = 1_000_000
BAR, ROW = 12.0, 24.0
THINNEST = 0.35
"""The least width in percent, so that a span that took no time can be seen."""
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400)
FRACTIONS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
MOST_TICKS = 6
WAITING = "waiting"
WORDS = {
    WAITING: "waited",
    "running": "runs",
    "succeeded": "succeeded",
    "errored": "raised an error",
    "timed_out": "took too long",
    "crashed": "its process died",
    "snoozed": "asked to run later",
    "cancelled": "was cancelled",
    "released": "was given back",
}
PATTERNED = ("crashed", "timed_out", "released")


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """From one moment to another, in microseconds; `kind` is `waiting`, `running` or how an attempt ended."""

    kind: str
    start: int
    end: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class TimelineAxis:
    """The time that the picture shows, with its ticks: percent from the left, and seconds since the start."""

    start: int
    end: int

    @property
    def ticks(self) -> list[tuple[float, str]]:
        seconds = self._length / SECOND
        step = next((one for one in (*FRACTIONS, *STEPS) if seconds / one <= MOST_TICKS), None)
        if step is None:
            days = seconds / 86_400
            step = 86_400.0 * (int(days / MOST_TICKS) + 1)
        count = int(seconds / step)
        return [(100 * at * step / seconds, lasted(at * step)) for at in range(count + 1)]

    def percent(self, moment: int) -> float:
        return 100 * min(max((moment - self.start) / self._length, 0.0), 1.0)

    @property
    def _length(self) -> int:
        return max(self.end - self.start, 1_000)


def timeline_axis(rows: Sequence[Sequence[TimelineSpan]]) -> TimelineAxis:
    """The axis on which all spans have a place."""
    spans = [span for row in rows for span in row]
    if not spans:
        return TimelineAxis(0, SECOND)
    return TimelineAxis(min([span.start for span in spans]), max([span.end for span in spans]))


def draw_axis(axis: TimelineAxis) -> Svg:
    """The scale above the rows."""
    parts = []
    for percent, label in axis.ticks:
        anchor = "start" if percent < 5 else "end" if percent > 95 else "middle"
        parts.append(
            element("text", label, x=_percent(percent), y=14.0, text_anchor=anchor, class_="axis-label")
        )
    return element(
        "svg",
        *parts,
        class_="timeline-axis",
        width="100%",
        height=20.0,
        aria_hidden="true",
        focusable="false",
    )


def draw_row(axis: TimelineAxis, spans: Sequence[TimelineSpan]) -> Svg:
    """The bar of one step; its words are the picture's text alternative."""
    grid = [
        element("line", x1=_percent(percent), x2=_percent(percent), y1=0.0, y2=ROW, class_="axis-line")
        for percent, _ in axis.ticks
    ]
    bars = [_span(axis, span) for span in spans]
    told = "; ".join([_sentence(span) for span in spans]) or "not begun"
    return element(
        "svg", *grid, *bars, class_="timeline-row", width="100%", height=ROW, role="img", aria_label=told
    )


def draw_patterns() -> Svg:
    """The patterns that rows refer to; once on a page."""
    lines = {
        "crashed": "M-2 2L2 -2M0 8L8 0M6 10L10 6",
        "timed_out": "M2 0V8M6 0V8",
        "released": "M0 2H8M0 6H8",
    }
    patterns = [
        element(
            "pattern",
            element("rect", width=8.0, height=8.0, class_=f"fill-{name}"),
            element("path", d=path, class_="pattern-line"),
            id=f"pattern-{name}",
            width=8.0,
            height=8.0,
            patternUnits="userSpaceOnUse",
        )
        for name, path in lines.items()
    ]
    return element(
        "svg", element("defs", *patterns), class_="patterns", width=0, height=0, aria_hidden="true"
    )


def lasted(seconds: float) -> str:
    """A duration in a short form: 0, 250 ms, 1.5 s, 3 m 20 s, 2 h, 3 d."""
    if seconds <= 0:
        return "0"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    units = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
    left, told = round(seconds), []
    for size, name in units:
        if left >= size:
            told.append(f"{left // size} {name}")
            left %= size
    return " ".join(told[:2])


def _span(axis: TimelineAxis, span: TimelineSpan) -> Svg:
    left = axis.percent(span.start)
    width = max(axis.percent(span.end) - left, THINNEST)
    left = min(left, 100 - width)
    thin = span.kind == WAITING
    height = 4.0 if thin else BAR
    return element(
        "rect",
        element("title", _sentence(span)),
        x=_percent(left),
        width=_percent(width),
        y=(ROW - height) / 2,
        height=height,
        rx=2.0 if thin else 3.0,
        fill=f"url(#pattern-{span.kind})" if span.kind in PATTERNED else None,
        class_=f"span span-{span.kind}",
    )


def _sentence(span: TimelineSpan) -> str:
    words = f"{WORDS.get(span.kind, span.kind)} {lasted((span.end - span.start) / SECOND)}"
    return f"{span.label}: {words}" if span.label else words


def _percent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"
