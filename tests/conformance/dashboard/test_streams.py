"""dashboard/asgi: Notices of changes as a stream, where the server speaks ASGI; it ends by itself, so that a server
can stop.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from penstock import Penstock
from penstock.dashboard import Dashboard, Viewer, asgi

SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "method": "GET",
    "path": "/ops/events",
    "root_path": "/ops",
}


async def _asked(dashboard: Dashboard, path: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> list[Any]:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {**SCOPE, "path": path, "headers": list(headers), "query_string": b""}
    await asyncio.wait_for(dashboard(scope, receive, send), 30)
    return sent


def test_a_stream_begins_with_a_notice_and_ends_by_itself(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "STREAM_SECONDS", 0.1)
    monkeypatch.setattr(asgi, "LOOK_EVERY", 0.01)
    dashboard = Dashboard(app, lambda _request: Viewer("ann", "all"))
    begin, *bodies = asyncio.run(_asked(dashboard, "/ops/events"))
    assert begin["status"] == 200
    assert (b"content-type", b"text/event-stream") in begin["headers"]
    text = b"".join(body["body"] for body in bodies)
    assert text.startswith(b"retry: 500\n\nevent: changed\nid: ")
    assert text.count(b"event: changed") == 1
    told = text.partition(b"id: ")[2].partition(b"\n")[0]
    calm = asyncio.run(_asked(dashboard, "/ops/events", [(b"last-event-id", told)]))
    assert not any(b"changed" in body["body"] for body in calm[1:]), "the browser knows this already"
    assert not bodies[-1].get("more_body", False)


def test_a_page_names_the_stream_only_where_there_is_one(app: Penstock) -> None:
    dashboard = Dashboard(app, lambda _request: Viewer("ann", "all"))
    page = asyncio.run(_asked(dashboard, "/ops/runs"))
    assert b'data-events="/ops/events"' in page[1]["body"]
    answer: list[Any] = []
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/runs",
        "SCRIPT_NAME": "/ops",
        "wsgi.url_scheme": "http",
    }
    html = b"".join(dashboard.wsgi(environ, lambda *given: answer.append(given)))
    assert answer[0][0].startswith("200")
    assert b"data-events" not in html


def test_a_stream_is_for_viewers_only(app: Penstock) -> None:
    sent = asyncio.run(_asked(Dashboard(app, lambda _request: None), "/ops/events"))
    assert sent[0]["status"] == 403
