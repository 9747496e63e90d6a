"""The ASGI door: FastAPI, Starlette, Litestar, Django, and every server that speaks ASGI.

The handler is synchronous and runs in a thread, so the event loop never waits for the database. A guard that is a
coroutine function runs on the loop: it may use objects that belong to the loop.

`/events` is a stream of notices that something has changed. Like wake-ups they are hints: a page is correct without
them. The server ends the stream after a few seconds and when the client leaves, so an open page never delays a stop for
longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from typing import Any, Protocol

from penstock.dashboard.access import AccessDecision
from penstock.dashboard.http import LONGEST_BODY, Request, Response, read_query

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

STREAM_SECONDS = 3.0
"""Seconds that a stream lasts at most: a server that is told to stop waits for it. Browsers open the next one at
once."""
LOOK_EVERY = 0.5
EVENTS = "/events"


class AsyncHandler(Protocol):
    """Answers requests of an event loop."""

    async def admission(self, request: Request) -> AccessDecision: ...

    async def answer(self, request: Request) -> Response: ...

    async def latest_stamp(self) -> str: ...


async def serve(handler: AsyncHandler, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request of an ASGI server."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    if scope["type"] != "http":
        raise RuntimeError(f"the dashboard answers http, not {scope['type']}")
    request = await read_request(scope, receive)
    if request.path == EVENTS and request.is_safe:
        refusal = (await handler.admission(request)).refusal
        if refusal is None:
            await _stream(handler, request.headers.get("last-event-id", ""), receive, send)
        else:
            await _send(send, request, refusal)
        return
    await _send(send, request, await handler.answer(request))


async def read_request(scope: Scope, receive: Receive) -> Request:
    """Make a request of an ASGI scope. Servers differ: the path may begin with the path of the mount, or not."""
    prefix = str(scope.get("root_path", "")).rstrip("/")
    path = str(scope["path"])
    if prefix and (path == prefix or path.startswith(f"{prefix}/")):
        path = path[len(prefix) :]
    headers: dict[str, str] = {}
    for name, value in scope.get("headers", ()):
        name, value = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[name] = f"{headers[name]}; {value}" if name in headers and name == "cookie" else value
    client = scope.get("client") or ("", 0)
    return Request(
        str(scope["method"]).upper(),
        path or "/",
        prefix,
        read_query(scope.get("query_string", b"").decode("latin-1")),
        headers,
        await _body(receive) if scope["method"] not in ("GET", "HEAD") else b"",
        str(scope.get("scheme", "http")),
        str(client[0]),
        scope,
    )


async def _body(receive: Receive) -> bytes:
    body = b""
    more = True
    while more and len(body) <= LONGEST_BODY:
        message = await receive()
        body += message.get("body", b"")
        more = message["type"] == "http.request" and message.get("more_body", False)
    return body


async def _send(send: Send, request: Request, response: Response) -> None:
    body = b"" if request.method == "HEAD" else response.body
    length = ("Content-Length", str(len(response.body)))
    await send(_start(response.status, ("Content-Type", response.content_type), length, *response.headers))
    await send({"type": "http.response.body", "body": body})


def _start(status: int, *headers: tuple[str, str]) -> dict[str, object]:
    written = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {"type": "http.response.start", "status": status, "headers": written}


async def _stream(handler: AsyncHandler, seen: str, receive: Receive, send: Send) -> None:
    """Send a notice when something has changed since the stamp that the browser has `seen`, in this stream or in
    earlier ones."""
    await send(
        _start(
            200,
            ("Content-Type", "text/event-stream"),
            ("Cache-Control", "no-store"),
            ("X-Accel-Buffering", "no"),
        )
    )
    leaving = asyncio.ensure_future(_left(receive))
    loop = asyncio.get_running_loop()
    end = loop.time() + STREAM_SECONDS
    await send({"type": "http.response.body", "body": b"retry: 500\n\n", "more_body": True})
    try:
        while not leaving.done() and loop.time() < end:
            stamp = sha256((await handler.latest_stamp()).encode()).hexdigest()[:16]
            notice = f"event: changed\nid: {stamp}\ndata: \n\n" if stamp != seen else ": \n\n"
            seen = stamp
            await send({"type": "http.response.body", "body": notice.encode(), "more_body": True})
            await asyncio.wait([leaving], timeout=LOOK_EVERY)
    finally:
        leaving.cancel()
    await send({"type": "http.response.body", "body": b""})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _live(receive: Receive, send: Send) -> None:
    """Answer the lifespan messages of a server: there is nothing to start or to stop."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
