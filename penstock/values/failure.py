"""What went wrong in an attempt, as texts that every database can store.

An exception is captured once, where it was caught, and travels from there as plain strings: it survives a
process boundary, and a retry policy can still match it by the names of its classes.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from types import TracebackType

from penstock.values.retry import lineage

LONGEST_MESSAGE = 8_000
LONGEST_TRACEBACK = 32_000
_OWN_FRAMES = ("penstock.runtime", "penstock.values", "penstock.testing")


@dataclass(frozen=True, slots=True)
class Failure:
    """An error's type, message and traceback, and the names of its class and its bases."""

    type: str
    message: str
    traceback: str = ""
    lineage: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Capture an exception; never raises, whatever its `__str__` does."""
        kind = type(error)
        module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
        return cls(
            type=clean(f"{module}{kind.__qualname__}", 200),
            message=clean(_message(error), LONGEST_MESSAGE),
            traceback=clean(_traceback(error), LONGEST_TRACEBACK),
            lineage=lineage(error),
        )

    @classmethod
    def note(cls, kind: str, message: str, traceback: str = "") -> Failure:
        """A failure that no exception stands for."""
        return cls(kind, clean(message, LONGEST_MESSAGE), clean(traceback, LONGEST_TRACEBACK))

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def clean(text: str, longest: int) -> str:
    """The text without what some database refuses (NUL, lone surrogates), cut in the middle if too long."""
    text = text.replace("\0", "\u2400")
    if len(text) > longest:
        tail = longest * 3 // 4
        head = longest - tail
        text = f"{text[:head]}\n... ({len(text) - longest:,} characters left out) ...\n{text[-tail:]}"
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:
        return f"<str() of the error raised {type(broken).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, _users_part(error.__traceback__)))
    except BaseException as broken:
        return f"<the traceback could not be formatted: {type(broken).__name__}>"


def _users_part(frames: TracebackType | None) -> TracebackType | None:
    # The frames that led into the handler are ours and the same for everybody: they tell the user nothing.
    rest = frames
    while rest is not None and str(rest.tb_frame.f_globals.get("__name__", "")).startswith(_OWN_FRAMES):
        rest = rest.tb_next
    return rest if rest is not None else frames
