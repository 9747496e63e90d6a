"""A browser without a screen: requests through the WSGI or the ASGI door, with cookies and redirects of their own."""

import asyncio
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from penstock import Penstock
from penstock.dashboard import Dashboard, Request, Viewer

HOST = "dash.example"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Browser:
    """Asks a dashboard that is mounted at `prefix`; `door` is "wsgi" or "asgi"."""

    dashboard: Any
    door: str = "wsgi"
    prefix: str = "/ops"
    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    client: str = "192.0.2.7"

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, b"", headers)

    def post(self, path: str, form: Mapping[str, object] | None = None, **headers: str) -> Answer:
        body = urlencode(form or {}, doseq=True).encode()
        usual = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
        return self.send("POST", path, body, usual | headers)

    def act(self, name: str, /, **form: object) -> Answer:
        """Post to an act's JSON form."""
        return self.post(f"/act/{name}.json", form)

    def send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        given = {"host": HOST, **self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sender = self._by_wsgi if self.door == "wsgi" else self._by_asgi
        status, pairs, answer = sender(method, path, body, given)
        for name, value in pairs:
            if name.lower() == "set-cookie":
                self._keep(value)
        return Answer(status, {name.lower(): value for name, value in pairs}, answer)

    def _keep(self, cookie: str) -> None:
        name, _, value = cookie.partition(";")[0].partition("=")
        if "Max-Age=0" in cookie:
            self.cookies.pop(name, None)
        else:
            self.cookies[name] = value

    def _by_wsgi(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        path, _, query = path.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": self.prefix,
            "PATH_INFO": path.encode().decode("latin-1"),
            "QUERY_STRING": query,
            "REMOTE_ADDR": self.client,
            "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": headers.pop("content-type", ""),
            "wsgi.input": io.BytesIO(body),
            "wsgi.url_scheme": "http",
        }
        environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
        begun: list[tuple[str, list[tuple[str, str]]]] = []
        answer = b"".join(self.dashboard.wsgi(environ, lambda *given: begun.append(given)))
        return int(begun[0][0].split()[0]), begun[0][1], answer

    def _by_asgi(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": self.prefix + path,
            "root_path": self.prefix,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
            "client": (self.client, 1),
            "scheme": "http",
        }
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self.dashboard(scope, receive, send))
        pairs = [(name.decode(), value.decode("latin-1")) for name, value in sent[0]["headers"]]
        return sent[0]["status"], pairs, b"".join(message.get("body", b"") for message in sent[1:])


def browser(app: Penstock, rights: Any = "all", door: str = "wsgi", **options: Any) -> Browser:
    """A browser of a viewer called Ann."""

    def guard(request: Request) -> Viewer | None:
        return Viewer("ann", rights)

    return Browser(Dashboard(app, guard, **options), door)
