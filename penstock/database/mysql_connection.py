"""A PyMySQL connection that stops waiting for a server that no longer works on its statement.

PyMySQL waits for an answer for as long as a statement may take, and a little more. A server that is frozen is left
sooner: see `penstock.database.server_probe`.

A statement that is broken off (Ctrl-C) closes the connection: its answer is still to come, and would be taken for that
of the next statement.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from pymysql.connections import Connection
from pymysql.constants import CR
from pymysql.err import OperationalError

from penstock.database.server_probe import SILENCE, Probe

if TYPE_CHECKING:
    Base = Connection[Any]
else:
    Base = Connection


class ProbedConnection(Base):
    """Checks, while it waits for an answer, whether the server still works on it."""

    # PyMySQL has no public names for these, and its stubs have none at all.
    _read_timeout: float | None
    _write_timeout: float | None
    _sock: Any
    _force_close: Callable[[], None]

    _preferred_tls: Any = None
    """Where the URL says nothing of TLS, one context serves all connections: to make one reads all certificates of the
    machine, 16 ms of CPU, and then none is checked."""
    probe: Probe | None = None
    session: Hashable = None
    """The server's number for this connection, and where; None behind a proxy, which has numbers of its own."""

    def _create_ssl_ctx(self, options: Any) -> Any:
        if options:
            return super()._create_ssl_ctx(options)  # type: ignore[misc]  # no stub
        if ProbedConnection._preferred_tls is None:
            ProbedConnection._preferred_tls = super()._create_ssl_ctx(options)  # type: ignore[misc]
        return ProbedConnection._preferred_tls

    def reach(self, seconds: float) -> None:
        """Connect. Gives up after this time if the server accepts the connection and then sends nothing."""
        usual = self._read_timeout, self._write_timeout
        self._read_timeout = self._write_timeout = seconds
        self.connect()
        self._read_timeout, self._write_timeout = usual

    def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
        try:
            return super().query(sql, unbuffered)
        except Exception:
            raise
        except BaseException:
            self._force_close()
            raise

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        self._await_answer()
        return super()._read_query_result(unbuffered)  # type: ignore[misc]  # no stub

    def _read_ok_packet(self) -> Any:
        self._await_answer()
        return super()._read_ok_packet()  # type: ignore[misc]  # no stub

    def _await_answer(self) -> None:
        try:
            self._poll()
        except BaseException:
            self._force_close()
            raise

    def _poll(self) -> None:
        if self.probe is None or self._sock is None or getattr(self._sock, "pending", int)():
            return
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        began, patience = time.monotonic(), self._read_timeout or math.inf
        while not poll.poll(min(patience, SILENCE) * 1000):
            waited = time.monotonic() - began
            if (waited >= patience or not self.probe.is_at_work(self.session)) and not poll.poll(0):
                words = f"no answer from the database for {round(waited, 1):g} s"
                raise OperationalError(CR.CR_SERVER_LOST, words)
