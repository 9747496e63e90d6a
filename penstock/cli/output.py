"""Prints results: tables for people, JSON for programs, and progress bars."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from textwrap import wrap

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from penstock.cli.exit_codes import UNBOUNDED, as_typed, err, out
from penstock.cli.table import lay_out, with_short_ids
from penstock.values.escape import in_json, in_line, in_text
from penstock.values.ids import short_id
from penstock.values.plain import moment, plain

COLOURS = {
    "succeeded": "green",
    "running": "cyan",
    "available": "blue",
    "scheduled": "blue",
    "failed": "red",
    "crashed": "red",
    "errored": "yellow",
    "timed_out": "yellow",
    "cancelled": "magenta",
    "released": "cyan",
    "ok": "green",
    "warning": "yellow",
    "problem": "red",
}


def show_json(value: object) -> None:
    """Print one JSON document on stdout; instants are ISO 8601 in UTC."""
    written = json.dumps(plain(value), ensure_ascii=False, indent=2, default=str)
    out.print(in_json(written), markup=False)


def stream_json(head: Mapping[str, object], name: str, pages: Iterable[Sequence[object]]) -> None:
    """Print one JSON object on stdout whose last field is a list that comes in pages; only one page is in memory."""
    written = json.dumps(plain(head), ensure_ascii=False, indent=2, default=str)
    opened = written.removesuffix("\n}")
    out.print(in_json(f'{opened},\n  "{name}": ['), markup=False, end="")
    separator = "\n"
    for page in pages:
        texts = [json.dumps(plain(item), ensure_ascii=False, indent=2, default=str) for item in page]
        lines = [text.replace("\n", "\n    ") for text in texts]
        out.print(in_json(separator + ",\n".join([f"    {line}" for line in lines])), markup=False, end="")
        separator = ",\n"
    out.print("\n  ]\n}" if separator == ",\n" else "]\n}", markup=False)


def tell(words: str, value: object, *, as_json: bool) -> None:
    """Print the result of a command: in words, or as a value for programs."""
    if as_json:
        show_json(value)
    else:
        out.print(as_typed(words), markup=False)


def say(words: str) -> None:
    """Print sentences for people, with commands as they are typed here; each line wrapped to the terminal."""
    for line in as_typed(words).split("\n"):
        for part in wrapped(line):
            out.print(part, markup=False)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str = "nothing") -> None:
    """Print a table, on a terminal with coloured statuses. A column whose name ends in " #" holds numbers."""
    if not rows:
        out.print(empty, markup=False)
        return
    # The first cell of a row has no line breaks: they could pose as another row.
    cells = [[in_line(str(row[0])), *map(_cell, row[1:])] for row in rows if row]
    if is_compact():
        cells = with_short_ids(cells)
    texts = [[Text(cell, style=COLOURS.get(cell, "")) for cell in row] for row in cells]
    for line in lay_out(columns, texts, out.width):
        out.print(line, soft_wrap=True)


def wrapped(words: str, indent: int = 0) -> list[str]:
    """A sentence in lines as wide as the terminal, less the indent; for a file or a pipe, in one line."""
    if not is_compact():
        return [words]
    room = max(20, out.width - indent)
    return wrap(words, room, break_long_words=False, break_on_hyphens=False) or [""]


def is_compact() -> bool:
    """True on a terminal, or where COLUMNS says how wide it is: ids are short there, and tables fit."""
    return out.width < UNBOUNDED


def named(id: str) -> str:
    """An id in an answer: short for people at a terminal, whole for scripts."""
    return short_id(id) if is_compact() else id


def when(micros: int | None) -> str:
    """An instant as people read it, without the date if it is today; a number out of range is printed unchanged."""
    if micros is None:
        return ""
    try:
        return at(moment(micros))
    except (ValueError, OverflowError, OSError):
        return str(micros)


def at(instant: datetime) -> str:
    """The same for an instant in UTC."""
    today = datetime.now(UTC)
    if not is_compact() or instant.year != today.year:
        return f"{instant:%Y-%m-%d %H:%M:%S}"
    return f"{instant:%H:%M:%S}" if instant.date() == today.date() else f"{instant:%m-%d %H:%M:%S}"


def span(seconds: float | None) -> str:
    """A duration in its two largest units."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 48 else f"{hours // 24}d{hours % 24:02}h"


@contextmanager
def progress(words: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, a line at the end elsewhere. The caller calls the function with the number of
    further items."""
    done = 0
    columns = (SpinnerColumn(), TextColumn(words), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(words, total=total)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bar.update(task, advance=count)

        yield advance


def _cell(value: object) -> str:
    number = isinstance(value, int) and not isinstance(value, bool)
    return in_text("" if value is None else f"{value:,}" if number else str(value))
