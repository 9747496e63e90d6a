"""Draws small charts as SVG: stacked bars, a line, a sparkline; each with its figures as words for screen readers.

The picture stretches with the page; numbers and times stand beside it as text, where they stay sharp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.dashboard.drawing.svg import Svg, element, number

HEIGHT = 100.0
GAP = 0.16
"""The gap between bars, as a share of a bar's width."""


@dataclass(frozen=True, slots=True)
class ChartBar:
    """One bar: its label, and a value for each series."""

    label: str
    values: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.values.values())


def draw_bars(name: str, bars: Sequence[ChartBar], series: Sequence[str]) -> Svg:
    """Bars of values on top of each other, in the order of `series`, the first at the bottom."""
    top = nice_top(max([bar.total for bar in bars], default=0.0))
    parts = [_grid(len(bars) or 1)]
    for place, bar in enumerate(bars):
        parts.append(_bar(place, bar, series, top))
    return _chart(name, _told(bars, series), max(len(bars), 1), parts, "chart-bars")


def draw_line(name: str, values: Sequence[float | None], *, unit: str = "", class_: str = "line-main") -> Svg:
    """A line over equal distances; None leaves a gap."""
    known = [value for value in values if value is not None]
    top = nice_top(max(known, default=0.0))
    parts = [_grid(max(len(values) - 1, 1))]
    for piece in _pieces(values, top):
        line = " ".join([f"{number(x)},{y:.2f}" for x, y in piece])
        if len(piece) > 1:
            area = f"{number(piece[0][0])},{number(HEIGHT)} {line} {number(piece[-1][0])},{number(HEIGHT)}"
            parts.append(element("polygon", points=area, class_=f"area {class_}"))
        else:
            line = f"{line} {number(piece[0][0] + 0.5)},{piece[0][1]:.2f}"
        parts.append(element("polyline", points=line, class_=f"line {class_}"))
    told = f"at most {max(known):,.3g}{unit}, last {known[-1]:,.3g}{unit}" if known else "no figures yet"
    return _chart(name, told, max(len(values) - 1, 1), parts, "chart-line")


def draw_sparkline(name: str, values: Sequence[float], class_: str = "line-main") -> Svg:
    """A tiny chart without scale, for a cell of a table."""
    top = max([*values, 0.0]) or 1.0
    parts = [element("rect", x=0, y=HEIGHT - 4, width=max(len(values), 1), height=4, class_="spark-base")]
    for place, value in enumerate(values):
        height = max(HEIGHT * value / top, 2.0 if value > 0 else 0.0)
        if height:
            parts.append(
                element(
                    "rect",
                    x=place + GAP / 2,
                    y=HEIGHT - height,
                    width=f"{1 - GAP:.2f}",
                    height=height,
                    class_=f"spark {class_}",
                )
            )
    return _chart(name, f"{sum(values):,.0f} in all", max(len(values), 1), parts, "sparkline")


def nice_top(most: float) -> float:
    """The end of a scale that includes the value: 1, 2, 2.5 or 5 times a power of ten."""
    if most <= 0:
        return 1.0
    size = 1.0
    while size * 10 <= most:
        size *= 10
    while size > most:
        size /= 10
    return next(size * step for step in (1, 2, 2.5, 5, 10) if size * step >= most)


def _bar(place: int, bar: ChartBar, series: Sequence[str], top: float) -> Svg:
    parts, at = [], HEIGHT
    for name in series:
        height = HEIGHT * bar.values.get(name, 0.0) / top
        if height > 0:
            at -= height
            parts.append(
                element(
                    "rect",
                    x=f"{place + GAP / 2:.2f}",
                    y=f"{at:.2f}",
                    width=f"{1 - GAP:.2f}",
                    height=f"{height:.2f}",
                    class_=f"bar bar-{name}",
                )
            )
    told = ", ".join([f"{bar.values.get(name, 0):,.0f} {name}" for name in series])
    hit = element("rect", x=place, y=0, width=1, height=HEIGHT, class_="hit")
    return element("g", element("title", f"{bar.label}: {told}"), *parts, hit, class_="column")


def _pieces(values: Sequence[float | None], top: float) -> list[list[tuple[float, float]]]:
    pieces: list[list[tuple[float, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((float(place), HEIGHT - HEIGHT * value / top))
    return [piece for piece in pieces if piece]


def _grid(width: float) -> Svg:
    lines = [
        element("line", x1=0, x2=width, y1=HEIGHT * part / 4, y2=HEIGHT * part / 4, class_="grid-line")
        for part in range(5)
    ]
    return element("g", *lines, class_="grid", aria_hidden="true")


def _told(bars: Sequence[ChartBar], series: Sequence[str]) -> str:
    sums = {name: sum([bar.values.get(name, 0.0) for bar in bars]) for name in series}
    return ", ".join([f"{count:,.0f} {name}" for name, count in sums.items()]) or "no figures yet"


def _chart(name: str, told: str, width: float, parts: Sequence[Svg], class_: str) -> Svg:
    return element(
        "svg",
        element("title", name),
        element("desc", told),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        class_=f"chart {class_}",
        viewBox=f"0 0 {number(width)} {number(HEIGHT)}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{name}: {told}",
    )
