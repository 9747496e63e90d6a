"""Sends statements to PostgreSQL in libpq's pipeline mode: prepared, and several in one round trip.

psycopg's cursors cost more than most of our statements do. Here the same connection is spoken to through its libpq
object: parameters go as text, rows are read by psycopg's own loaders, errors are psycopg's. Statements collect until
the caller waits for a result; then all of them are sent in one round trip.
"""

from __future__ import annotations

import math
import select
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from typing import Any, NamedTuple

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, PipelineStatus
from psycopg.types.array import ListDumper
from psycopg.types.bool import BoolDumper, BoolLoader
from psycopg.types.numeric import FloatDumper, IntDumper, IntLoader
from psycopg.types.string import StrDumper, TextLoader

from penstock.database.dialect import Row
from penstock.database.server_probe import SILENCE, Probe

UNKNOWN, BOOL, INT8, FLOAT8 = 0, 16, 20, 701
OFF = PipelineStatus.OFF
FATAL_ERROR = int(ExecStatus.FATAL_ERROR)
DONE = frozenset({int(ExecStatus.TUPLES_OK), int(ExecStatus.COMMAND_OK)})
FORGOTTEN = "26000"
"""A prepared statement does not exist any more: another user of the connection has deallocated them all."""
READABLE = select.POLLIN
WRITABLE = select.POLLIN | select.POLLOUT
IdLoader = TextLoader
"""Ids are text to us, on every database."""
LOADERS: dict[str, Any] = {
    **dict.fromkeys(("uuid", "text", "varchar"), IdLoader),
    **dict.fromkeys(("int2", "int4", "int8"), IntLoader),
    "bool": BoolLoader,
}
DUMPERS: dict[type, Any] = {
    str: StrDumper,
    int: IntDumper,
    float: FloatDumper,
    bool: BoolDumper,
    list: ListDumper,
}
Parameter = tuple[bytes | None, int]


def read_as_ours(adapters: AdaptersMap) -> None:
    """Use psycopg's own loaders and dumpers for our rows, whatever the connection's owner has registered."""
    for name, loader in LOADERS.items():
        adapters.register_loader(name, loader)
    for kind, dumper in DUMPERS.items():
        adapters.register_dumper(kind, dumper)


class _Context(NamedTuple):
    adapters: AdaptersMap
    connection: Any


class Answer:
    """A statement and, once it was waited for, its result."""

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
    def has_arrived(self) -> bool:
        return self._result is not None

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
    """A sync point: commits the statements before it, unless they are inside BEGIN; later ones start anew."""


class Wire:
    """Sends statements through a connection's libpq object. It leaves the pipeline before other code uses the
    connection."""

    def __init__(self, driver: Any, patience: float) -> None:
        self.driver = driver
        self.pgconn = driver.pgconn
        self.patience = patience
        adapters = AdaptersMap(driver.adapters)
        read_as_ours(adapters)
        self._transformer = Transformer(_Context(adapters, driver))
        self._names: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._numbers = count()
        self._expected: deque[Answer | _Preparation | _Commit] = deque()
        self._poll = select.poll()
        self.broken = False
        """True if a wait was interrupted: the next answer on this connection belongs to no statement."""

    def write(self, sql: str, values: Sequence[object]) -> Answer:
        """A statement that is ready to be posted."""
        return Answer(self._transformer, sql, [ENCODERS[type(value)](value) for value in values])

    def post(self, answer: Answer) -> None:
        """Have a statement executed after those before it. Its answer comes with the next `wait`."""
        name = self._names.get((answer.sql, answer.kinds)) or self.prepared(answer)
        if self.pgconn.pipeline_status == OFF:
            self.pgconn.enter_pipeline_mode()
        self.pgconn.send_query_prepared(name, answer.texts)
        self._expected.append(answer)

    def prepared(self, answer: Answer) -> bytes:
        """The name under which a statement is prepared, from its first use on."""
        key = (answer.sql, answer.kinds)
        name = self._names.get(key)
        if name is None:
            if self.pgconn.pipeline_status == OFF:
                self.pgconn.enter_pipeline_mode()
            name = self._names[key] = b"penstock_%d" % next(self._numbers)
            self.pgconn.send_prepare(name, answer.sql.encode(), answer.kinds)
            self._expected.append(_Preparation(key))
        return name

    def send(self, sql: str, values: Sequence[object] = ()) -> Answer:
        answer = self.write(sql, values)
        self.post(answer)
        return answer

    def wait(self) -> None:
        """Wait until everything sent is done. Raises the first error after all answers have arrived."""
        if not self._expected:
            return
        self.broken = True
        self.pgconn.pipeline_sync()
        self._expected.append(_Commit())
        self._flush()
        error: psycopg.Error | None = None
        waiting, receive = self._expected, self._receive
        while waiting:
            expected, result = waiting.popleft(), receive()
            if result is None:
                raise psycopg.OperationalError("the connection is closed")
            if type(expected) is _Commit:
                # An error of the commit itself: the end of that, and of the round trip, follow.
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
        ready: list[tuple[int, int]] = self.driver.ready(self._poll, self.patience)
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


# A transaction of ours on PostgreSQL, while it is open.

IDLE = psycopg.pq.TransactionStatus.IDLE


class OpenTransaction:
    """Goes by the wire; once it is lent to SQLAlchemy, through psycopg's cursors.

    All statements of one round trip are a transaction by themselves. So BEGIN is sent only when the caller waits before
    the end: a transaction of one round trip has neither BEGIN nor COMMIT, and one without statements costs nothing.
    """

    __slots__ = ("_begun", "_block", "_lent", "_pipeline", "_unsent", "driver", "wire")

    def __init__(self, driver: Any, wire: Wire, block: bool) -> None:
        self.driver = driver
        self.wire = wire
        self._block = block
        self._begun = False
        self._unsent: list[Answer] = []
        self._lent: ExitStack | None = None
        self._pipeline: psycopg.Pipeline | None = None

    def execute(self, sql: str, values: Sequence[object]) -> Any:
        if self._lent is not None:
            return self._with_cursors(sql, values)
        answer = self.wire.write(sql, values)
        if self._begun:
            self.wire.post(answer)
        else:
            self._unsent.append(answer)
        return answer

    def _with_cursors(self, sql: str, values: Sequence[object]) -> Any:
        cursor = psycopg.RawCursor(self.driver)
        cursor.adapters.register_loader("uuid", IdLoader)
        return cursor.execute(sql, values)

    def send(self) -> None:
        """Send the statements so far; more statements of this transaction will follow."""
        if self._unsent and self._block:
            self.wire.send("BEGIN")
            self._begun = True
        self._post()

    def _post(self) -> None:
        unsent, self._unsent = self._unsent, []
        for answer in unsent:
            self.wire.post(answer)

    def use_driver_cursors(self) -> None:
        if self._lent is None:
            self.send()
            self.wire.leave()
            if self.wire.pgconn.transaction_status == IDLE:
                self.driver.autocommit = True  # we begin and commit, not the driver
            self.driver.patience = self.wire.patience
            self._lent = ExitStack()
            self._pipeline = self._lent.enter_context(self.driver.pipeline())
            if self._block and not self._begun:
                self.driver.execute("BEGIN")
                self._begun = True

    def wait(self) -> None:
        if self._pipeline is not None:
            self._pipeline.sync()
        else:
            self.send()
            self.wire.wait()

    def commit(self) -> None:
        self._post()
        if self._begun:
            self.execute("COMMIT", ())
        if self._lent is not None:
            self._return()
        self.wire.leave()

    def rollback(self) -> None:
        if self.wire.broken:
            self.driver.close()
            return
        self._unsent.clear()
        with suppress(psycopg.Error):
            if self._lent is not None:
                self._return()
            self.wire.leave()
        if self.wire.pgconn.transaction_status != IDLE:
            self.wire.send("ROLLBACK")
        self.wire.leave()

    def _return(self) -> None:
        lent, self._lent, self._pipeline = self._lent, None, None
        if lent is not None:
            lent.close()


# psycopg's connection, which does not wait for ever for an answer.
#
# The server ends every statement of ours in time. But one that is frozen, or a proxy that acknowledges everything and
# passes nothing on, is silent for ever, and its client would wait for ever. psycopg's cursors know no such limit.


class TimeLimitedConnection(psycopg.Connection[Any]):
    """A connection with a longest wait. Each caller sets `patience` again before it uses the connection."""

    patience: float | None = None
    """The longest wait in seconds; None: no limit, since users set limits in their own transactions."""
    probe: Probe | None = None
    """Asked whether the server is still at work."""
    session: Hashable = None
    """The server's process for this connection, and where; None behind a pooler, where it is another's."""

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        patience = self.patience
        if patience is None and self.probe is None:
            return super().wait(gen, *args, **kwargs)
        return super().wait(self._heard(gen, math.inf if patience is None else patience), *args, **kwargs)

    def ready(self, poll: select.poll, patience: float) -> list[tuple[int, int]]:
        """The registered descriptors that can be read or written, for callers that do not use psycopg's cursors."""
        began = time.monotonic()
        while True:
            left = patience - (time.monotonic() - began)
            if found := poll.poll(max(0.0, min(left, SILENCE)) * 1000):
                return found
            if left <= SILENCE or not self._is_at_work():
                if found := poll.poll(0):  # it came while we asked
                    return found
                raise silent(min(time.monotonic() - began, patience))

    def _heard(self, gen: PQGen[RV], patience: float) -> PQGen[RV]:
        """The same steps, as long as something comes. While nothing does, psycopg asks every now and then."""
        last = asked = time.monotonic()
        given_up = False
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    last = asked = now
                elif given_up or now - last >= patience:
                    self.close()  # the next answer on it belongs to no statement
                    raise silent(min(now - last, patience))
                elif now - asked >= SILENCE:
                    given_up = not self._is_at_work()
                    asked = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            found: RV = end.value
            return found

    def _is_at_work(self) -> bool:
        return self.probe is None or self.probe.is_at_work(self.session)


def silent(seconds: float) -> psycopg.OperationalError:
    """The connection counts as lost."""
    return psycopg.OperationalError(f"no answer from the database for {round(seconds, 1):g} s")
