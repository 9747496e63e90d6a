"""Serves ASGI and WSGI applications from a thread of the test, on a free port, and asks them by HTTP."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import urlencode, urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import uvicorn

from tests.waiting import eventually

STOP_SECONDS = 2


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    url: str,
    method: str = "GET",
    form: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    context: Any = None,
    body: str | None = None,
) -> Answer:
    """One request; redirects are not followed. A form is posted from the site itself, unless headers say otherwise."""
    where = urlsplit(url)
    given = dict(headers or {})
    if form is not None:
        method, body = "POST", urlencode(form, doseq=True)
        given.setdefault("Content-Type", "application/x-www-form-urlencoded")
        given.setdefault("Sec-Fetch-Site", "same-origin")
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    more = {"context": context} if context is not None else {}
    connection = kind(where.hostname or "", where.port, timeout=60, **more)
    try:
        connection.request(method, where.path + (f"?{where.query}" if where.query else ""), body, given)
        response = connection.getresponse()
        return Answer(
            response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        )
    finally:
        connection.close()


@contextmanager
def asgi_server(application: Any, **options: Any) -> Iterator[str]:
    """The address of an ASGI application, served by uvicorn until the end of the block."""
    config = uvicorn.Config(
        application, "127.0.0.1", 0, log_config=None, timeout_graceful_shutdown=STOP_SECONDS, **options
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="asgi", daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started or not thread.is_alive())
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"{'https' if config.is_ssl else 'http'}://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


class _Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base's
        """Says nothing."""


@contextmanager
def wsgi_server(application: Callable[..., Any]) -> Iterator[str]:
    """The address of a WSGI application, one thread a request, until the end of the block."""
    server = _Threads(("127.0.0.1", 0), _Quiet)
    server.set_app(application)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="wsgi", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
