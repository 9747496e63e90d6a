"""PyMySQL's cursors that give rows as tuples, whatever the connection's owner likes for their own."""

from __future__ import annotations

from typing import Any

from pymysql.cursors import Cursor as TupleCursor

from penstock.database.as_text import as_text

__all__ = ["TextCursor", "TupleCursor"]


class TextCursor(TupleCursor):
    """For a connection that gives texts as bytes."""

    def fetchall(self) -> tuple[tuple[Any, ...], ...]:
        return tuple([as_text(self, row) for row in super().fetchall()])
