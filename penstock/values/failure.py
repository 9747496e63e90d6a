"""Captures the failure of an attempt as texts that every database can store.

An exception is captured once, where it was caught, and travels from there as plain strings: it survives a
process boundary, and a retry policy can still match it by the names of its classes.
"""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from penstock.values.retry import lineage

LONGEST_MESSAGE = 8_000
LONGEST_TRACEBACK = 32_000
_OWN_FRAMES = (
    "penstock.runtime",
    "penstock.values",
    "penstock.testing",
    "penstock.middleware",
    "penstock.reconcile",
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error's type, message and traceback, and the names of its class and its bases."""

    type: str
    message: str
    traceback: str = ""
    lineage: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Capture an exception; never raises, whatever the methods of the error and of its class do."""
        return cls(
            type=clean(_text_of(_kind, error), 200),
            message=clean(_text_of(str, error), LONGEST_MESSAGE),
            traceback=clean(_text_of(_traceback, error), LONGEST_TRACEBACK),
            lineage=_lineage(error),
        )

    @classmethod
    def note(cls, kind: str, message: str, traceback: str = "") -> Failure:
        """A failure without an exception."""
        return cls(kind, clean(message, LONGEST_MESSAGE), clean(traceback, LONGEST_TRACEBACK))

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def clean(text: str, longest: int) -> str:
    """The text without what some database refuses (NUL, lone surrogates), cut in the middle if too long."""
    text = str.__str__(text)  # a subclass may have methods of its own, with errors of their own
    text = text.replace("\0", "\u2400")
    if len(text) > longest:
        tail = longest * 3 // 4
        head = longest - tail
        text = f"{text[:head]}\n... ({len(text) - longest:,} characters left out) ...\n{text[-tail:]}"
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _text_of(say: Callable[[BaseException], str], error: BaseException) -> str:
    """A text about an error; if making it raises, a text that says so."""
    try:
        return str.__str__(say(error))
    except BaseException as broken:
        what = "str()" if say is str else say.__name__.strip("_")
        return f"<could not be put into words: {what} of the error raised {_kind_safely(broken)}>"


def _kind(error: BaseException) -> str:
    kind = type(error)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def _kind_safely(error: BaseException) -> str:
    """The class name of an error that was raised while another was described; never raises."""
    try:
        return str.__str__(_kind(error))
    except BaseException:
        return "an error without a name"


def _lineage(error: BaseException) -> tuple[str, ...]:
    try:
        return tuple(clean(name, 200) for name in lineage(error))
    except BaseException:
        return ()


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, _users_part(error.__traceback__)))


def _users_part(frames: TracebackType | None) -> TracebackType | None:
    # The frames that led into the handler are Penstock's and always the same: they tell the user nothing.
    rest = frames
    while rest is not None and str(rest.tb_frame.f_globals.get("__name__", "")).startswith(_OWN_FRAMES):
        rest = rest.tb_next
    return rest if rest is not None else frames


# Groups of failures: the same task, the same exception, at the same place of the user's code.

FRAME = re.compile(r'^[ |+]*File "(.+)", line \d+, in (.+)$', re.MULTILINE)
FOREIGN = re.compile(r"[/\\](site-packages|dist-packages|lib[/\\]python3[.\d]*|penstock)[/\\]|^<")
LONGEST_PLACE = 200


def place_of(traceback: str) -> str:
    """The innermost frame of the user's own code, as file and function: lines move with every edit."""
    frames: list[tuple[str, str]] = FRAME.findall(
        traceback.rpartition("Traceback (most recent call last)")[2]
    )
    own = [frame for frame in frames if not FOREIGN.search(frame[0])] or frames
    if not own:
        return ""
    file, function = own[-1]
    short = "/".join(re.split(r"[/\\]", file)[-2:])
    return f"{short} in {function}"[-LONGEST_PLACE:]


def fingerprint(task: str, failure: Failure | None) -> dict[str, object]:
    """The fields of a dead letter by which failures are grouped."""
    kind = failure.type if failure else ""
    place = place_of(failure.traceback) if failure else ""
    digest = hashlib.sha256(f"{task}\0{kind}\0{place}".encode("utf-8", "replace")).hexdigest()
    return {"error_type": kind[:LONGEST_PLACE] or None, "place": place or None, "fingerprint": digest[:16]}
