"""The WSGI door: Flask, Django, and every server that speaks WSGI. One request, one response, no stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import IO, Any, Protocol

from penstock.dashboard.http import LONGEST_BODY, Request, Response, read_query

StartResponse = Callable[..., Any]


class SyncHandler(Protocol):
    """Answers a request in the calling thread."""

    def respond(self, request: Request) -> Response: ...


def serve(handler: SyncHandler, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """Answer one request of a WSGI server."""
    response = handler.respond(read_request(environ))
    phrase = HTTPStatus(response.status).phrase
    length = ("Content-Length", str(len(response.body)))
    start_response(
        f"{response.status} {phrase}", [("Content-Type", response.content_type), length, *response.headers]
    )
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.body]


def read_request(environ: dict[str, Any]) -> Request:
    """Make a request of a WSGI environ. WSGI passes bytes as Latin-1: the path is decoded as UTF-8."""
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): str(value)
        for name, value in environ.items()
        if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")
    }
    headers.setdefault("host", f"{environ.get('SERVER_NAME', '')}:{environ.get('SERVER_PORT', '')}")
    return Request(
        str(environ["REQUEST_METHOD"]).upper(),
        _text(environ.get("PATH_INFO", "")) or "/",
        _text(environ.get("SCRIPT_NAME", "")).rstrip("/"),
        read_query(environ.get("QUERY_STRING", "")),
        headers,
        _body(environ.get("wsgi.input"), headers.get("content-length", "")),
        str(environ.get("wsgi.url_scheme", "http")),
        str(environ.get("REMOTE_ADDR", "")),
        environ,
    )


def _body(stream: IO[bytes] | None, length: str) -> bytes:
    """The body; if it is too large, one byte more than is allowed, so that the handler refuses it."""
    most = int(length) if length.isdigit() else 0
    return stream.read(min(most, LONGEST_BODY + 1)) if stream is not None and most else b""


def _text(latin: str) -> str:
    return latin.encode("latin-1", "replace").decode("utf-8", "replace")
