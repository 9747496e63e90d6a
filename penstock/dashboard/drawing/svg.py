"""Writes SVG elements as text, with everything escaped: names of tasks, keys and errors may be hostile."""

from __future__ import annotations

import re
from html import escape

# Characters that XML does not allow, and those that reverse the direction of the text around them.
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]"
)
SHOWN_INSTEAD = "\ufffd"


class Svg(str):
    """Text that is markup already: templates do not escape it."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def plain(text: object) -> str:
    """The text without characters that would break the document or reverse its direction."""
    return FORBIDDEN.sub(SHOWN_INSTEAD, str(text))


def shortened(text: str, most: int) -> str:
    """The text, cut to so many characters with an ellipsis at the end."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def number(value: float) -> str:
    """A coordinate as text, rounded."""
    return f"{value:.1f}".removesuffix(".0")


def element(tag: str, *children: str, **attributes: object) -> Svg:
    """One element. `class_` is the attribute class, an underscore inside a name is a hyphen; None leaves one out.

    A child is text, and is escaped, unless it is an `Svg`.
    """
    told = "".join([_attribute(name, value) for name, value in attributes.items() if value is not None])
    inside = "".join([child if isinstance(child, Svg) else escape(plain(child)) for child in children])
    return Svg(f"<{tag}{told}>{inside}</{tag}>" if inside else f"<{tag}{told}/>")


def joined(parts: list[Svg]) -> Svg:
    """Several elements, one after the other."""
    return Svg("".join(parts))


def _attribute(name: str, value: object) -> str:
    shown = number(value) if isinstance(value, float) else str(value)
    return f' {name.rstrip("_").replace("_", "-")}="{escape(plain(shown))}"'
