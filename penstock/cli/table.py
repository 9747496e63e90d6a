"""Tables that fit the terminal: nothing is cut off, and no time or id is broken over two lines.

If a table is too wide, empty columns are left out, long words are continued in the next line, and columns that still
have no room are printed below their row, after their name. A table that fits, or goes into a file or a pipe, has one
line per row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from penstock.values.ids import shortened

GAP = 2
WHOLE = frozenset(
    {"id", "subject", "job", "run", "process", "status", "outcome", "state", "nominal", "there", "UTC", "pid"}
)
"""Columns that are never broken into lines, besides numbers and times."""
PROSE = frozenset({"error", "detail", "why", "when", "reasons", "reason", "key", "description"})
"""Columns that need much room, or that most rows leave empty: they are printed below first."""
LEAST, LEAST_PROSE = 10, 24
"""The least width of a column that is broken into lines, unless its content is shorter."""
INDENT = "    "
ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
BREAKS = re.compile(r"(?<=[\s./_:,;=-])")
"""Characters after which a long word may be broken."""


@dataclass(slots=True)
class Column:
    """A column: its name, its cells, and how it may be laid out."""

    name: str
    number: bool
    cells: list[Text]
    width: int = 0

    @property
    def natural(self) -> int:
        return max([cell_len(self.name), *[_longest(cell) for cell in self.cells]])

    @property
    def whole(self) -> bool:
        return self.number or self.name in WHOLE or "(UTC)" in self.name

    @property
    def least(self) -> int:
        if self.whole:
            return self.natural
        return min(self.natural, LEAST_PROSE if self.name in PROSE else LEAST)

    @property
    def is_empty(self) -> bool:
        return not any(cell.plain for cell in self.cells)


def with_short_ids(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The same cells with their ids shortened, as far as they can still be told apart."""
    ids = {id for row in rows for text in row for id in ID.findall(text)}
    short = shortened(ids)
    return [[ID.sub(lambda found: short[found[0]], text) for text in row] for row in rows]


def lay_out(names: Sequence[str], rows: Sequence[Sequence[Text]], width: int) -> list[Text]:
    """The lines of a table that is no wider than this, as far as its first column allows."""
    columns = [
        Column(name.removesuffix(" #"), name.endswith(" #"), [row[index] for row in rows])
        for index, name in enumerate(names)
    ]
    beside, below = _divided(columns, width)
    head = [Text(column.name, style="bold") for column in beside]
    lines = [_joined(head, beside)]
    for index in range(len(rows)):
        lines += _row(index, beside)
        for column in below:
            lines += _below(column, index, width)
    return lines


def _divided(columns: list[Column], width: int) -> tuple[list[Column], list[Column]]:
    """The columns that are printed side by side, with their widths, and those that are printed below."""
    if _width([column.natural for column in columns]) <= width:
        for column in columns:
            column.width = column.natural
        return columns, []
    first, *others = columns
    beside = [first, *[column for column in others if not column.is_empty]]
    below: list[Column] = []
    while len(beside) > 1 and _width([column.least for column in beside]) > width:
        prose = [column for column in beside[1:] if column.name in PROSE]
        moved = (prose or beside)[-1]
        beside.remove(moved)
        below.insert(0, moved)
    _share(beside, width)
    return beside, below


def _share(columns: list[Column], width: int) -> None:
    """Give each column its least width, then one more in turn to those that want it."""
    for column in columns:
        column.width = column.least
    spare = width - _width([column.width for column in columns])
    while spare > 0 and (wanting := [column for column in columns if column.width < column.natural]):
        for column in wanting[:spare]:
            column.width += 1
            spare -= 1


def _row(index: int, columns: Sequence[Column]) -> list[Text]:
    parts = [_broken(column.cells[index], column.width) for column in columns]
    height = max(map(len, parts))
    return [
        _joined([part[line] if line < len(part) else Text() for part in parts], columns)
        for line in range(height)
    ]


def _below(column: Column, index: int, width: int) -> list[Text]:
    cell = column.cells[index]
    if not cell.plain:
        return []
    name = f"{INDENT}{column.name}: "
    parts = _broken(cell, max(LEAST, width - cell_len(name)))
    return [Text(name if line == 0 else " " * cell_len(name)) + part for line, part in enumerate(parts)]


def _joined(cells: Sequence[Text], columns: Sequence[Column]) -> Text:
    line = Text()
    for cell, column in zip(cells, columns, strict=True):
        padding = " " * (column.width - cell_len(cell.plain))
        line += Text(padding) + cell if column.number else cell + Text(padding)
        line += Text(" " * GAP)
    line.rstrip()
    return line


def _broken(cell: Text, width: int) -> list[Text]:
    """The lines of a cell, broken where words end, else inside a word."""
    lines: list[str] = []
    for paragraph in cell.plain.split("\n"):
        line = ""
        for word in BREAKS.split(paragraph):
            if line and cell_len(line + word.rstrip()) > width:
                lines.append(line.rstrip())
                line = ""
            line += word
            while cell_len(line.rstrip()) > width:
                cut = _fitting(line, width)
                lines.append(line[:cut])
                line = line[cut:]
        lines.append(line.rstrip())
    return [Text(line, style=cell.style) for line in lines]


def _fitting(line: str, width: int) -> int:
    """How many letters of the word fit, at least one."""
    fitting = 1
    while fitting < len(line) and cell_len(line[: fitting + 1]) <= width:
        fitting += 1
    return fitting


def _longest(cell: Text) -> int:
    return max(map(cell_len, cell.plain.split("\n")))


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)
