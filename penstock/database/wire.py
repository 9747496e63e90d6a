"""Statements to PostgreSQL by the shortest way: prepared, sent ahead, answered together.

psycopg's cursors cost more than most of our statements do. Here the same connection is spoken to through its libpq
object: parameters go as text, rows are read by psycopg's own loaders, errors are psycopg's. Statements collect until
somebody waits; then all of them travel in one journey.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

import psycopg
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, PipelineStatus
from psycopg.types.string import TextLoader

from penstock.database.dialect import Row

UNKNOWN, BOOL, INT8, FLOAT8 = 0, 16, 20, 701
OFF = PipelineStatus.OFF
FATAL_ERROR = int(ExecStatus.FATAL_ERROR)
DONE = frozenset({int(ExecStatus.TUPLES_OK), int(ExecStatus.COMMAND_OK)})
FORGOTTEN = "26000"
"""A prepared statement is not there any more: somebody who had the connection in between has deallocated them all."""
READABLE = select.POLLIN
WRITABLE = select.POLLIN | select.POLLOUT
IdLoader = TextLoader
"""Ids are text to us, on every database."""
Parameter = tuple[bytes | None, int]


class _Context(NamedTuple):
    adapters: AdaptersMap
    connection: Any


class Answer:
    """A statement, and what it will have come to once it has been waited for."""

    __slots__ = ("_result", "_transformer", "kinds", "sql", "texts")

    def __init__(self, transformer: Any, sql: str, parameters: Sequence[Parameter]) -> None:
        self.sql = sql
        self.texts = [text for text, _ in parameters]
        self.kinds = tuple([kind for _, kind in parameters])
        self._transformer = transformer
        self._result: Any = None

    def arrived(self, result: Any) -> None:
        self._result = result

    @property
    def rowcount(self) -> int:
        return self._result.command_tuples or 0

    def fetchall(self) -> list[Row]:
        self._transformer.set_pgresult(self._result)
        rows: list[Row] = self._transformer.load_rows(0, self._result.ntuples, tuple)
        return rows


class _Preparation(NamedTuple):
    key: tuple[str, tuple[int, ...]]


class _Commit(NamedTuple):
    """What was sent before this is committed, if it stood for itself; what comes after begins anew."""


class Wire:
    """A connection's shortest way. Whoever uses it leaves the pipeline before anybody else uses the connection."""

    def __init__(self, driver: Any, patience: float) -> None:
        self.pgconn = driver.pgconn
        self.patience = patience
        adapters = AdaptersMap(driver.adapters)
        adapters.register_loader("uuid", IdLoader)
        self._transformer = Transformer(_Context(adapters, driver))
        self._names: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._numbers = count()
        self._expected: deque[Answer | _Preparation | _Commit] = deque()
        self._poll = select.poll()
        self.broken = False
        """A wait was broken off: what comes next on this connection belongs to nobody."""

    def write(self, sql: str, values: Sequence[object]) -> Answer:
        """A statement that is ready to be posted."""
        return Answer(self._transformer, sql, [ENCODERS[type(value)](value) for value in values])

    def post(self, answer: Answer) -> None:
        """Have a statement executed after those before it. Its answer comes with the next `wait`."""
        pgconn = self.pgconn
        if pgconn.pipeline_status == OFF:
            pgconn.enter_pipeline_mode()
        key = (answer.sql, answer.kinds)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = b"penstock_%d" % next(self._numbers)
            pgconn.send_prepare(name, answer.sql.encode(), answer.kinds)
            self._expected.append(_Preparation(key))
        pgconn.send_query_prepared(name, answer.texts)
        self._expected.append(answer)

    def send(self, sql: str, values: Sequence[object] = ()) -> Answer:
        answer = self.write(sql, values)
        self.post(answer)
        return answer

    def part(self) -> None:
        """Let what follows be no part of what was sent so far, although it travels with it."""
        if self._expected and type(self._expected[-1]) is not _Commit:
            self.pgconn.pipeline_sync()
            self._expected.append(_Commit())

    def wait_for_answers(self) -> None:
        """Until what was sent is answered. Its commit is under way then, and waited for by the next `wait`."""
        if self._expected and type(self._expected[0]) is not _Commit:
            self.pgconn.send_flush_request()
            self._answered(len(self._expected))

    def wait(self) -> None:
        """Until everything sent is done. The first error is raised, after all answers are in."""
        if self._expected:
            self._answered(None)

    def _answered(self, count: int | None) -> None:
        self.broken = True
        self.part()
        self._flush()
        error: psycopg.Error | None = None
        waiting, receive = self._expected, self._receive
        left = len(waiting) - count if count is not None else 0
        while len(waiting) > left:
            expected, result = waiting.popleft(), receive()
            if result is None:
                raise psycopg.OperationalError("the connection is closed")
            if type(expected) is _Commit:
                # An error of the commit itself: the end of that, and of the journey, follow.
                if result.status == FATAL_ERROR:
                    error = error or error_from_result(result)
                    if receive() is not None or receive() is None:
                        raise error
                continue
            if receive() is not None:
                raise psycopg.OperationalError("more answers than there were questions")
            if result.status not in DONE:
                problem = self._problem(expected, result)
                error = error or problem
            elif type(expected) is Answer:
                expected.arrived(result)
        self.broken = False
        if error is not None:
            raise error

    def leave(self) -> None:
        """Give the connection back to the driver."""
        self.wait()
        if self.pgconn.pipeline_status != OFF:
            self.pgconn.exit_pipeline_mode()

    def _problem(self, expected: Answer | _Preparation | _Commit, result: Any) -> psycopg.Error | None:
        if isinstance(expected, _Preparation):
            self._names.pop(expected.key, None)
        if result.status == ExecStatus.PIPELINE_ABORTED:
            return None
        problem = error_from_result(result)
        if problem.sqlstate == FORGOTTEN:
            self._names.clear()
        return problem

    def _receive(self) -> Any:
        pgconn = self.pgconn
        while pgconn.is_busy():
            self._ready(READABLE)
            pgconn.consume_input()
        return pgconn.get_result()

    def _flush(self) -> None:
        while self.pgconn.flush():
            if self._ready(WRITABLE) & READABLE:
                self.pgconn.consume_input()

    def _ready(self, events: int) -> int:
        """By poll, in the interpreter: so that Ctrl-C ends a wait, and any number of files may be open.

        The server ends every statement in time. Of one that is stuck, or lost behind a proxy, nothing is heard at all.
        """
        self._poll.register(self.pgconn.socket, events)
        ready = self._poll.poll(self.patience * 1000)
        if not ready:
            raise psycopg.OperationalError(f"no answer from the database for {self.patience:g} s")
        return ready[0][1]


def _text(value: Any) -> Parameter:
    data = value.encode()
    if 0 in data:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return data, UNKNOWN


def array_text(items: Iterable[object]) -> str:
    """A list as PostgreSQL reads it."""
    return "{" + ",".join([_quoted(item) for item in items]) + "}"


def _array(value: Any) -> Parameter:
    return _text(array_text(value))


class _Encoders(dict[type, Callable[[Any], Parameter]]):
    """By the value's own type; what is derived from one of these, such as an enumeration, goes as that."""

    def __missing__(self, kind: type) -> Callable[[Any], Parameter]:
        for base in kind.__mro__:
            if base in self:
                self[kind] = self[base]
                return self[base]
        raise TypeError(f"no parameter of ours: {kind}")


# Parameters as text, with their type where PostgreSQL would otherwise have to guess a number's.
ENCODERS = _Encoders(
    {
        type(None): lambda _: (None, UNKNOWN),
        bool: lambda value: (b"t" if value else b"f", BOOL),
        int: lambda value: (b"%d" % value, INT8),
        str: _text,
        float: lambda value: (repr(value).encode(), FLOAT8),
        list: _array,
        tuple: _array,
    }
)


def _quoted(item: object) -> str:
    return '"' + str(item).replace("\\", "\\\\").replace('"', '\\"') + '"'
