"""Tells how far the numbers are that a database gives to new rows, and sets them back.

MySQL and SQLite go on from the greatest number that a row ever had. A row that was given the greatest of all by hand
uses the numbers up, and no row can be added after it. PostgreSQL counts apart from its rows, by a sequence, which can
be set to its end by hand as well.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.database.transaction import Transaction

COUNTED = ("availabilities", "run_places", "tallies")
"""The tables whose column `seq` counts."""
LAST = 2**62
"""No count comes so far in the life of a table."""
NEXT = re.compile(r"AUTO_INCREMENT=(\d+)")
COUNTER = "SELECT seq FROM sqlite_sequence WHERE name = '{%s}'"
SEQUENCE = "CAST(pg_get_serial_sequence('{%s}', 'seq') AS regclass)"
SEQUENCE_VALUE = f"SELECT COALESCE(pg_sequence_last_value({SEQUENCE}), 0)"
SET_SEQUENCE = f"SELECT setval({SEQUENCE}, :next, false)"
SET_COUNTER = "UPDATE sqlite_sequence SET seq = %d WHERE name = '{%s}'"
GREATEST = f"SELECT COALESCE(MAX(seq), 0) FROM {{%s}} WHERE seq < {LAST}"
BEYOND = f"SELECT seq FROM {{%s}} WHERE seq >= {LAST} ORDER BY seq LIMIT 1000"
MOVE = "UPDATE {%s} SET seq = :new WHERE seq = :old"


def is_used_up(tx: Transaction, table: str) -> bool:
    """True if the numbers of a table are beyond every count."""
    if _next(tx, table) >= LAST:
        return True
    return tx.dialect.name != "postgresql" and bool(tx.rows(BEYOND % table))


def set_back(tx: Transaction, table: str) -> bool:
    """Give rows with such numbers the next ones after all others, and go on from there. May be repeated."""
    if not is_used_up(tx, table):
        return False
    last = int((tx.row(GREATEST % table) or (0,))[0])
    for (old,) in tx.rows(BEYOND % table):
        last += 1
        tx.run(MOVE % table, new=last, old=int(old))
    if tx.dialect.name == "mysql":
        # Commits what was done so far.
        tx.run(f"ALTER TABLE {{{table}}} AUTO_INCREMENT = {last + 1}")
    elif tx.dialect.name == "postgresql":
        tx.row(SET_SEQUENCE % table, next=last + 1)
    else:
        tx.run(SET_COUNTER % (last, table))
    return True


def _next(tx: Transaction, table: str) -> int:
    if tx.dialect.name != "mysql":
        row = tx.row((COUNTER if tx.dialect.name == "sqlite" else SEQUENCE_VALUE) % table)
        return 0 if row is None or row[0] is None else int(row[0])
    made = tx.row(f"SHOW CREATE TABLE {{{table}}}")
    found = NEXT.search(str(made[1])) if made is not None else None
    return int(found[1]) if found else 0
