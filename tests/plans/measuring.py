"""How many rows the database touches for each statement: by EXPLAIN ANALYZE, or the counters of MariaDB and MySQL.

On PostgreSQL, every statement that goes by the wire is first executed under EXPLAIN, behind a savepoint, on the same
connection and by the same prepared plan; then it is executed for good. So what is counted is the plan that a worker
would have used, with the settings of its connection and whatever statistics there are. Statements on the user's own
tables go by SQLAlchemy: they are explained as they stand, not by a plan that the driver may have kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import Executable

from penstock.database.dialect import Parameters
from penstock.database.mysql import MySql
from penstock.database.postgres.pipeline import Answer, OpenTransaction, Wire
from penstock.database.user.statements import Statements, _Borrowed

EXPLAIN = "EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF, FORMAT JSON) EXECUTE"
EXPLAINED = ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")
REMOVED = ("Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")


@dataclass(slots=True)
class Measured:
    """The most that an execution of each statement took, and its plan then."""

    _answers: list[tuple[str, Answer]] = field(default_factory=list)
    of_users: list[tuple[str, Any]] = field(default_factory=list)
    """Statements on the user's own tables, and their plans."""

    def note(self, sql: str, answer: Answer) -> None:
        self._answers.append((sql, answer))

    def most(self) -> dict[str, tuple[int, Any]]:
        """By statement: the rows that were touched, and the plan."""
        found: dict[str, tuple[int, Any]] = defaultdict(lambda: (0, None))
        for sql, answer in self._answers:
            if not answer.has_arrived:  # something before it has failed, and it was not executed at all
                continue
            plan = answer.fetchall()[0][0][0]["Plan"]
            found[sql] = max(found[sql], (touched(plan), plan), key=lambda pair: pair[0])
        for sql, plan in self.of_users:
            found[sql] = max(found[sql], (touched(plan), plan), key=lambda pair: pair[0])
        return dict(found)


def touched(plan: Any) -> int:
    """Rows that came out of a node of the plan, or were read by it in vain, over all of its nodes."""
    mine = plan["Actual Rows"] + sum(plan.get(name, 0) for name in REMOVED)
    return int(mine * plan["Actual Loops"]) + sum(touched(part) for part in plan.get("Plans", ()))


class ExplainingCursor:
    """A cursor of SQLAlchemy's that explains each statement before it executes it."""

    def __init__(self, cursor: Any, driver: Any, measured: Measured) -> None:
        self._cursor, self._driver, self._measured = cursor, driver, measured

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, sql: str, given: Any = None, **options: Any) -> Any:
        self._explain(sql, given)
        return self._cursor.execute(sql, given, **options)

    def executemany(self, sql: str, given: Any, **options: Any) -> Any:
        self._explain(sql, given[0])
        return self._cursor.executemany(sql, given, **options)

    def _explain(self, sql: str, given: Any) -> None:
        if sql.lstrip().startswith(EXPLAINED):
            with self._driver.cursor() as cursor:
                cursor.execute("SAVEPOINT explained")
                cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF, FORMAT JSON) {sql}", given)
                self._measured.of_users.append((sql, cursor.fetchone()[0][0]["Plan"]))
                cursor.execute("ROLLBACK TO SAVEPOINT explained")


@contextmanager
def measuring() -> Iterator[Measured]:
    """Count what is executed inside; everything is done in transactions of their own BEGIN."""
    measured = Measured()
    post = Wire.post

    def explain_first(wire: Wire, answer: Answer) -> None:
        if answer.sql.lstrip().startswith(EXPLAINED):
            _explain(wire, answer, measured)
        post(wire, answer)

    def begin_first(opened: OpenTransaction) -> None:
        unsent, opened._unsent = opened._unsent, []
        if unsent and not opened._begun:
            opened.wire.send("BEGIN")
            opened._begun = True
        for answer in unsent:
            opened.wire.post(answer)

    cursor = _Borrowed.cursor

    def explaining(borrowed: _Borrowed, *given: Any, **options: Any) -> ExplainingCursor:
        return ExplainingCursor(cursor(borrowed, *given, **options), borrowed.tx.driver, measured)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Borrowed, "cursor", explaining)
        patch.setattr(Wire, "post", explain_first)
        patch.setattr(OpenTransaction, "_post", begin_first)
        patch.setattr(OpenTransaction, "send", begin_first)
        yield measured


def _explain(wire: Wire, answer: Answer, measured: Measured) -> None:
    name = wire.prepared(answer)
    given = ", ".join("NULL" if text is None else _quoted(text) for text in answer.texts)
    explained = f"{EXPLAIN} {name.decode()}" + (f"({given})" if answer.texts else "")
    for sql in ("SAVEPOINT explained", explained, "ROLLBACK TO SAVEPOINT explained"):
        told = wire.write(sql, ())
        wire.pgconn.send_query_params(sql.encode(), None)
        wire._expected.append(told)
        if sql is explained:
            measured.note(answer.sql, told)


def _quoted(text: bytes) -> str:
    return "'" + text.decode().replace("'", "''") + "'"


READ = """
SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%' OR Variable_name = 'Handler_icp_attempts'
"""

"""With the entries of an index that were read and passed over, as far as they are counted."""


@contextmanager
def counting() -> Iterator[dict[str, int]]:
    """On MariaDB and MySQL: by statement, the most rows that its handlers were asked for."""
    most: dict[str, int] = {}
    execute = MySql.execute

    def read(driver: Any) -> int:
        cursor = driver.cursor()
        cursor.execute(READ)
        return sum(int(value) for _, value in cursor.fetchall())

    asking: list[int] = []

    def own(driver: Any) -> int:
        """What the question itself reads: on MySQL, hundreds of rows of its own tables."""
        if not asking:
            asking.append(-read(driver) + read(driver))
        return asking[0]

    def count(dialect: MySql, driver: Any, opened: object, sql: str, parameters: Parameters) -> Any:
        usual, before = own(driver), read(driver)
        answer = execute(dialect, driver, opened, sql, parameters)
        most[sql] = max(most.get(sql, 0), read(driver) - before - usual)
        return answer

    execute_users = Statements._execute

    def count_users(statements: Statements, statement: Executable, values: Any, *, wait: bool) -> Any:
        driver, sql = statements.tx.driver, str(statement)
        usual, before = own(driver), read(driver)
        answer = execute_users(statements, statement, values, wait=wait)
        most[sql] = max(most.get(sql, 0), read(driver) - before - usual)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MySql, "execute", count)
        patch.setattr(Statements, "_execute", count_users)
        yield most
