"""Showing things: tables for people, JSON for programs, progress where something takes time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from penstock.cli.exit_codes import err, out
from penstock.values.escape import in_json, in_text
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


FIXED = ("id", "job", "status", "outcome")
"""Columns that are never broken into lines."""
LEAST = 3
"""Other columns are never narrower: on a small terminal rows go on in the next line, and nothing is left out."""
GAP = 2


def show_json(value: object) -> None:
    """One JSON document on stdout; instants are ISO 8601 in UTC."""
    written = json.dumps(plain(value), ensure_ascii=False, indent=2, default=str)
    out.print(in_json(written), markup=False)


def tell(words: str, value: object, *, as_json: bool) -> None:
    """Print the result of a command: in words, or as a value for programs."""
    if as_json:
        show_json(value)
    else:
        out.print(words, markup=False)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str = "nothing") -> None:
    """A table; statuses in colour on a terminal. A column whose name ends in " #" holds numbers."""
    if not rows:
        out.print(empty, markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    cells = [[_cell(value) for value in row] for row in rows]
    width = 0
    for column, under in zip(columns, zip(*cells, strict=True), strict=True):
        name, number = column.removesuffix(" #"), column.endswith(" #")
        fixed = number or name in FIXED
        table.add_column(name, no_wrap=fixed, overflow="fold", justify="right" if number else "left")
        width += (max(len(name), *[cell.cell_len for cell in under]) if fixed else LEAST) + GAP
    for row in cells:
        table.add_row(*row)
    if width > out.width:
        table.width = width
    out.print(table, soft_wrap=False, crop=False)


def when(micros: int | None) -> str:
    """An instant as people read it; a number that is none, as it is."""
    if micros is None:
        return ""
    try:
        return f"{moment(micros):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return str(micros)


def span(seconds: float | None) -> str:
    """A length of time in its two largest units."""
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
    """Call what is given with how many more are done: a bar on a terminal, a line at the end elsewhere."""
    done = 0
    columns = (SpinnerColumn(), TextColumn(words), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(words, total=total)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bar.update(task, advance=count)

        yield advance


def _cell(value: object) -> Text:
    number = isinstance(value, int) and not isinstance(value, bool)
    text = "" if value is None else f"{value:,}" if number else str(value)
    return Text(in_text(text), style=COLOURS.get(text, ""))
