"""Requests and responses as plain values: the handler knows no framework, no server and no event loop.

A door (`asgi.py`, `wsgi.py`) makes the request and sends the response. Free text such as the name of a task or a
schedule stands in the query string; paths hold only words of ours and ids, so no proxy or framework can split them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, quote, urlencode

LONGEST_BODY = 4 * 1024 * 1024
"""Bytes; a larger request is refused."""
MOST_FIELDS = 1000
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
SAFE = frozenset({"GET", "HEAD"})

Fields = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `path` is below `prefix`, the place where the dashboard is mounted; names of headers are small.

    `native` is what the server gave: the ASGI scope, the WSGI environ, or a framework's own request. A guard finds a
    session or a user there.
    """

    method: str = "GET"
    path: str = "/"
    prefix: str = ""
    query: Fields = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    scheme: str = "http"
    client: str = ""
    native: object = None

    @property
    def host(self) -> str:
        """The host and port that the browser asked for."""
        return self.headers.get("host", "").strip().lower()

    @property
    def is_safe(self) -> bool:
        """True if the method only reads."""
        return self.method in SAFE

    @property
    def wants_json(self) -> bool:
        """True if the answer is to be JSON: the address ends in .json, or a program says so."""
        sent = self.headers.get("content-type", "").startswith(JSON)
        asked = self.headers.get("accept", "").startswith(JSON)
        return self.path.endswith(".json") or sent or asked

    def cookie(self, name: str) -> str:
        try:
            found = SimpleCookie(self.headers.get("cookie", "")).get(name)
        except CookieError:
            return ""
        return found.value if found else ""

    def form(self) -> dict[str, object]:
        """The fields of the body: of a form, texts (a list if there are several); of JSON, its object."""
        if self.headers.get("content-type", "").startswith(JSON):
            try:
                found = json.loads(self.body or b"{}")
            except RecursionError:
                raise ValueError("the JSON is nested too deeply") from None
            if not isinstance(found, dict):
                raise ValueError("the body is JSON, but no object")
            return {
                name: storable(value) if isinstance(value, str) else value for name, value in found.items()
            }
        given = read_form(self.body.decode("utf-8"))
        return {name: values[0] if len(values) == 1 else values for name, values in given.items()}


@dataclass(frozen=True, slots=True)
class Response:
    """A response. Names of headers are as they are sent; a header may come twice."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/html; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()

    def with_headers(self, *more: tuple[str, str]) -> Response:
        return Response(self.status, self.body, self.content_type, (*self.headers, *more))


def read_query(text: str) -> dict[str, list[str]]:
    """The fields of a query string; if there are absurdly many, only the first."""
    return read_form("&".join(text.split("&", MOST_FIELDS)[:MOST_FIELDS]))


def read_form(text: str) -> dict[str, list[str]]:
    """The fields of a form; refused if there are absurdly many."""
    found = parse_qs(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    return {name: [storable(value) for value in values] for name, values in found.items()}


def storable(text: str) -> str:
    """The text with replacements for what no database can store or compare: NUL, and halves of characters."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def address(path: str, query: Mapping[str, object] | None = None) -> str:
    """A path with a query string; fields that are None are left out, and a list is a field several times."""
    given = {
        name: value if isinstance(value, list | tuple) else str(value)
        for name, value in (query or {}).items()
        if value is not None
    }
    written = quote(path, safe="/-._~:@!$&'()*+,;=")
    return f"{written}?{urlencode(given, doseq=True)}" if given else written


def redirect(to: str) -> Response:
    """Redirect to another page after a form, so that a reload does not send the form again."""
    return Response(303, b"", "text/plain; charset=utf-8", (("Location", to),))


def as_json(value: object, status: int = 200) -> Response:
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return Response(status, text.encode("utf-8", "backslashreplace"), JSON)
