"""dashboard/asgi, dashboard/wsgi: the dashboard inside other applications, over real HTTP: frameworks, sub-paths,
proxies, TLS.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")
pytest.importorskip("fastapi", reason="fastapi is not installed")
pytest.importorskip("flask", reason="flask is not installed")
pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.routing import Mount
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

from penstock import Penstock
from penstock.dashboard import Request, Viewer
from tests.web import Answer, asgi_server, ask, wsgi_server

CERTIFICATE = Path(__file__).parent / "certificate"
MOUNT = "/tools/ops"


async def from_a_loop(request: Request) -> Viewer | None:
    """An async guard, which runs on the framework's event loop."""
    return who(request)


def who(request: Request) -> Viewer | None:
    return Viewer("ann", "all") if request.headers.get("x-user") == "ann" else None


def fastapi_app(app: Penstock) -> AbstractContextManager[str]:
    web = FastAPI()
    web.mount(MOUNT, app.dashboard(guard=from_a_loop))
    return asgi_server(web)


def starlette_app(app: Penstock) -> AbstractContextManager[str]:
    inner = Starlette(routes=[Mount("/ops", app.dashboard(guard=who))])
    return asgi_server(Starlette(routes=[Mount("/tools", inner)]))


def flask_app(app: Penstock) -> AbstractContextManager[str]:
    web = Flask("shop")
    web.wsgi_app = DispatcherMiddleware(web.wsgi_app, {MOUNT: app.dashboard(guard=who).wsgi})  # type: ignore[method-assign]
    return wsgi_server(web)


def behind_a_proxy_that_strips(app: Penstock) -> AbstractContextManager[str]:
    """The proxy takes its prefix off and says nothing about it, so the dashboard is told."""
    board = app.dashboard(guard=who, prefix=MOUNT)

    def stripped(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        return board.wsgi({**environ, "PATH_INFO": environ["PATH_INFO"].removeprefix(MOUNT)}, start)

    return wsgi_server(stripped)


def behind_a_proxy_that_tells(app: Penstock) -> AbstractContextManager[str]:
    """The proxy takes its prefix off and names it in a header, which the server believes."""
    told = ProxyFix(app.dashboard(guard=who).wsgi, x_prefix=1)

    def stripped(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        path = environ["PATH_INFO"].removeprefix(MOUNT)
        return told({**environ, "PATH_INFO": path, "HTTP_X_FORWARDED_PREFIX": MOUNT}, start)

    return wsgi_server(stripped)


def uvicorn_with_a_root_path(app: Penstock) -> AbstractContextManager[str]:
    """The proxy before it strips the prefix, so that is how it is asked."""
    return asgi_server(app.dashboard(guard=who), root_path=MOUNT)


WAYS = [
    fastapi_app,
    starlette_app,
    flask_app,
    behind_a_proxy_that_strips,
    behind_a_proxy_that_tells,
    uvicorn_with_a_root_path,
]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def mounted(request: pytest.FixtureRequest, app: Penstock) -> Iterator[str]:
    with request.param(app) as address:
        yield address if request.param is uvicorn_with_a_root_path else address + MOUNT


@pytest.mark.one_database
def test_it_works_wherever_it_is_mounted(app: Penstock, mounted: str) -> None:
    @app.task(name="receipt")
    def receipt(order: int) -> int:
        return order

    job = receipt.enqueue(1)
    ann = {"X-User": "ann"}
    assert ask(f"{mounted}/jobs").status == 403
    root = ask(f"{mounted}/", headers=ann)
    assert root.status == 200
    page = ask(f"{mounted}/jobs", headers=ann)
    addresses = _own_addresses(root) | _own_addresses(page)
    assert {f"{MOUNT}/", f"{MOUNT}/jobs"} <= addresses
    for address in addresses:
        assert address.startswith((f"{MOUNT}/", "#", "?")), address
    for file in [address for address in addresses if "/static/" in address]:
        assert ask(mounted + file.partition("#")[0].removeprefix(MOUNT)).status == 200, file
    assert ask(f"{mounted}/jobs.json", headers=ann).json["jobs"][0]["id"] == job.id
    act = ask(f"{mounted}/act/cancel-jobs", form={"id": job.id, "back": "/jobs"}, headers=ann)
    assert (act.status, act.headers["location"]) == (303, f"{MOUNT}/jobs"), act.text
    assert f"Path={MOUNT}" in act.headers["set-cookie"]
    assert job.status == "cancelled"


def _own_addresses(page: Answer) -> set[str]:
    found = re.findall(r'(?:href|src|action)="([^"]+)"', page.text)
    return {address for address in found if not address.startswith(("https://", "http://"))}


@pytest.mark.one_database
def test_it_works_over_tls(app: Penstock) -> None:
    @app.task(name="receipt")
    def receipt(order: int) -> int:
        return order

    job = receipt.enqueue(1)
    files = {"ssl_keyfile": CERTIFICATE / "key.pem", "ssl_certfile": CERTIFICATE / "certificate.pem"}
    trusting = ssl.create_default_context(cafile=CERTIFICATE / "certificate.pem")
    with asgi_server(app.dashboard(guard=who), **files) as address:
        for origin, status in (("http://127.0.0.1", 403), (address, 200)):
            answer = _posted(address, job.id, {"X-User": "ann", "Origin": origin}, trusting)
            assert answer.status == status, answer.text
    assert job.status == "cancelled"


def _posted(address: str, id: str, headers: dict[str, str], context: ssl.SSLContext) -> Answer:
    """As an old browser does, which names its origin and nothing more."""
    kind = {"Content-Type": "application/json"}
    body = f'{{"id": "{id}"}}'
    return ask(f"{address}/act/cancel-jobs.json", "POST", headers=headers | kind, context=context, body=body)
