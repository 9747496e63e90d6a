"""A small HTTP server for metrics and probes: one thread, one request at a time, each bounded in time.

It can rest: the thread ends and the socket goes on listening, so that a supervisor can fork with no other thread at
work. Requests that arrive meanwhile wait in the socket's queue.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, NamedTuple

from penstock.errors import ConfigurationError

log = logging.getLogger("penstock")

TEXT = "text/plain; version=0.0.4; charset=utf-8"
PATIENCE = 2.0
"""Seconds that a client may take to send its request or to read the answer."""


class ProbeAnswer(NamedTuple):
    """The answer to a request."""

    status: int
    text: str


Routes = Mapping[str, Callable[[], ProbeAnswer]]


class MetricsServer:
    """Answers requests for a few paths."""

    def __init__(self, host: str, port: int, routes: Routes) -> None:
        self._routes = routes
        self._resting = threading.Event()
        self._thread: threading.Thread | None = None
        handler = type("MetricsHandler", (_Handler,), {"routes": routes})
        try:
            self._http = _Http((host, port), handler)
        except OSError as error:
            raise ConfigurationError(
                f"metrics cannot be served on {host}, port {port}: {error.strerror or error}. "
                "Choose another --metrics-port"
            ) from error
        self._http.timeout = 0
        self._wake_read, self._wake_write = os.pipe()

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def handles(self) -> list[int]:
        """The numbers of the socket and of our own pipe, which a forked child closes."""
        return [self._http.fileno(), self._wake_read, self._wake_write]

    def start(self) -> None:
        if self._thread is None:
            self._resting.clear()
            self._thread = threading.Thread(target=self._serve, name="penstock-metrics", daemon=True)
            self._thread.start()

    def rest(self) -> None:
        """End the thread, after the request that it answers."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._resting.set()
            os.write(self._wake_write, b"!")
            thread.join(2 * PATIENCE + 1)
            os.read(self._wake_read, 1)

    def close(self) -> None:
        self.rest()
        self._http.server_close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _serve(self) -> None:
        while not self._resting.is_set():
            try:
                if self._http.fileno() in select.select([self._http.fileno(), self._wake_read], [], [])[0]:
                    self._http.handle_request()
            except Exception:
                log.exception("a request for metrics could not be answered")


class _Http(HTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a client that has gone away as debug only."""
        log.debug("a request for metrics was broken off", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    routes: Routes = {}
    timeout = PATIENCE
    server_version = "penstock"
    sys_version = ""

    def do_GET(self) -> None:
        answer = self._answer()
        body = answer.text.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", TEXT)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def _answer(self) -> ProbeAnswer:
        route = self.routes.get(self.path.partition("?")[0])
        if route is None:
            return ProbeAnswer(404, f"there is {', '.join(sorted(self.routes))}\n")
        try:
            return route()
        except Exception as error:
            log.warning("a request for %s could not be answered", self.path, exc_info=True)
            return ProbeAnswer(503, f"{type(error).__name__}\n")

    def log_message(self, *_: Any) -> None:
        """Log no requests."""
