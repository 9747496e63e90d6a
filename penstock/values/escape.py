"""Escapes control characters in untrusted text for terminals, log lines, pages and JSON.

Marks that turn the direction of the text around them are escaped too: with them a name could pose as another. Letters
of languages that are written from right to left need none. So are the separators of lines and paragraphs (U+2028,
U+2029): with them a name could pose as another line.
"""

from __future__ import annotations

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_MARKS = {code: f"\\u{code:04x}" for code in (*range(0x2028, 0x202F), *range(0x2066, 0x206A))}
_IN_LINE = _CONTROLS | _MARKS | {ord("\t"): "\t", ord("\n"): "\\n", ord("\r"): "\\r"}
_IN_TEXT = _CONTROLS | _MARKS | {ord("\t"): "\t", ord("\n"): "\n"}
_IN_JSON = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}

ENDS = ".:;,?!"


def in_text(text: str) -> str:
    return text.replace("\r\n", "\n").translate(_IN_TEXT)


def in_line(text: str) -> str:
    return text.translate(_IN_LINE)


def in_one_line(text: str) -> str:
    """Join the lines of a message, with a full stop where a line that has none is followed by a sentence."""
    joined = ""
    for words in filter(None, map(str.split, text.splitlines())):
        line = " ".join(words)
        joined += f". {line}" if joined[-1:] not in ENDS and line[0].isupper() else f" {line}"
    return joined.strip()


def in_json(text: str) -> str:
    """Escape the control characters that JSON itself leaves as they are, so that the text stays JSON."""
    return text.translate(_IN_JSON)
