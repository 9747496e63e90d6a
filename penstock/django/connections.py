"""Keeps Django's connections healthy around handlers, as Django itself does around requests.

Before a handler, connections that are broken or too old are closed: after a restart of the server the next query opens
a new one. After it, likewise; and of the threads that wait for work only a few keep theirs, however many there are. The
queries of an `async def` handler get a thread of their own, as those of a request do under ASGI; it ends with the
handler, and its connections are closed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import close_old_connections, connections, reset_queries

if TYPE_CHECKING:
    from penstock.middleware import HandlerCall


class HandlerConnections:
    """A middleware: the connections of one process's handlers."""

    def __init__(self, most_kept: int) -> None:
        self.most_kept = most_kept
        """How many idle threads may keep an open connection, if CONN_MAX_AGE allows it."""
        self._keeping: set[int] = set()
        self._lock = threading.Lock()

    def __call__(self, call: HandlerCall) -> Iterator[None]:
        queries = ThreadSensitiveContext()
        token = SyncToAsync.thread_sensitive_context.set(queries)
        self._begin()
        try:
            yield
        finally:
            self._end()
            SyncToAsync.thread_sensitive_context.reset(token)
            _end_thread_of(queries)

    def _begin(self) -> None:
        with self._lock:
            self._keeping.discard(threading.get_ident())
        reset_queries()
        close_old_connections()
        for each in connections.all(initialized_only=True):
            # A connection that was kept may be broken, and only a query would show it.
            if each.connection is not None and not each.in_atomic_block and not each.is_usable():
                each.close()

    def _end(self) -> None:
        close_old_connections()
        opened = [each for each in connections.all(initialized_only=True) if each.connection is not None]
        if not opened or self._may_keep():
            return
        for each in opened:
            if not each.in_atomic_block:
                each.close()

    def _may_keep(self) -> bool:
        with self._lock:
            if len(self._keeping) >= self.most_kept:
                return False
            self._keeping.add(threading.get_ident())
            return True


def _end_thread_of(queries: ThreadSensitiveContext) -> None:
    """If the handler ran queries in a thread: close its connections there, and end the thread."""
    executor = SyncToAsync.context_to_thread_executor.pop(queries, None)
    if executor is not None:
        executor.submit(connections.close_all)
        executor.shutdown(wait=False)
