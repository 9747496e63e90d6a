"""Renders pages as HTML. Jinja2 is imported here and nowhere else; everything is escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path

from penstock.dashboard.drawing.svg import Svg
from penstock.dashboard.pictures import PICTURES
from penstock.errors import ConfigurationError
from penstock.values.escape import in_text
from penstock.values.plain import counted

try:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
except ImportError as missing:  # pragma: no cover - the extra is installed where tests run
    raise ConfigurationError("the dashboard needs Jinja2: pip install 'penstock[dashboard]'") from missing

TEMPLATES = Path(__file__).parent / "templates"
MINUTE, HOUR, DAY = 60, 3600, 86_400
COMMAND = re.compile(r"(?<=: )(penstock [^;`]+)")
"""A command at the end of an advice, or before a semicolon."""


def render(template: str, values: Mapping[str, object]) -> bytes:
    """The HTML of a template."""
    return environment().get_template(template).render(values).encode("utf-8", "backslashreplace")


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    made.globals.update(PICTURES)
    made.filters.update(span=span, number=number, rate=rate, json=as_json_text)
    made.filters.update(short=short, ticked=ticked, dotted=dotted, counted=counted)
    return made


def span(seconds: float | None) -> str:
    """A length of time in words: "<1 ms", "350 ms", "4.2 s", "3 m 05 s", "2 h 10 m", "4 d 3 h"."""
    if seconds is None:
        return ""
    seconds = max(0.0, seconds)
    if 0 < seconds < 0.0005:
        return "<1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0"
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    if seconds < HOUR:
        return f"{int(seconds // MINUTE)} m {int(seconds % MINUTE):02} s"
    if seconds < 2 * DAY:
        return f"{int(seconds // HOUR)} h {int(seconds % HOUR // MINUTE):02} m"
    return f"{int(seconds // DAY)} d {int(seconds % DAY // HOUR)} h"


def number(value: float | None) -> str:
    """A number with separators."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def rate(per_second: float) -> str:
    """A rate in words: per second, or per minute if it is low."""
    if per_second >= 1 or not per_second:
        return f"{per_second:,.1f}/s" if per_second else "0/s"
    return f"{per_second * MINUTE:,.1f}/min"


def short(id: str) -> str:
    """The end of an id, which tells jobs apart at a glance: ids of the same second begin alike."""
    return f"…{id[-8:]}"


def as_json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def ticked(text: str) -> Svg:
    """A sentence as HTML: text between backticks becomes code, and so does a command after a colon."""
    text = COMMAND.sub(r"`\1`", text)
    parts = [escape(in_text(part)) for part in re.split(r"`([^`]+)`", text)]
    return Svg("".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts)))


def dotted(text: str) -> Svg:
    """A name as HTML, which may be broken after a dot if it is too long for its place."""
    return Svg(escape(in_text(text)).replace(".", ".<wbr>"))


def _finalize(value: object) -> object:
    """The text, or nothing for None; control characters of stored texts are made visible."""
    if value is None:
        return ""
    return in_text(value) if type(value) is str else value
