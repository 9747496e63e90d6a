"""Whatever is sent to the dashboard, it answers: never with an error of its own, never with markup of a stranger."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock import Penstock
from penstock.dashboard.dashboard import EVERY_ACT
from penstock.dashboard.pages import ROUTES
from tests.conformance.dashboard.browser import Browser, browser
from tests.conformance.dashboard.hostile_app import HOSTILE, NAME, fill
from tests.conformance.dashboard.markup import Markup
from tests.pages import addresses

CASES = 60
TEXTS = [
    "",
    " ",
    "0",
    "-1",
    "1e308",
    "NaN",
    "9" * 400,
    "\x00",
    "a\x00b",
    "%",
    "_",
    "%25%00",
    "'",
    "' or 1=1 --",
    "\\",
    "../../etc/passwd",
    "//evil.example",
    "javascript:alert(1)",
    HOSTILE,
    "\ud800",
    "\U0001f4a9",
    "[" * 2000,
    "{" * 2000,
    '{"a": ' * 2000,
    "null",
    "[1",
    '"\\ud800"',
    "2026-13-99",
    "9999-12-31T23:59:60Z",
    "x" * 70_000,
]
BODIES = [
    b"",
    b"\xff\xfe",
    b"[]",
    b"null",
    b"{",
    b'{"id": {"a": 1}}',
    b"[" * 100_000,
    b"a=1&" * 2000,
    b"=%ff%00",
]
HEADERS = {
    "if-none-match": ["*", '"x"', "\xff"],
    "cookie": ["=", "penstock_session=x; penstock_notice=%%%", "penstock_notice=AAAA", "a=\xff; b=\x00", '"'],
    "accept": ["application/json", "*/*", "\xff"],
    "authorization": ["Basic \xff", "Basic ====", "Bearer x", "Basic"],
    "host": ["", "evil.example", "[::1", "a:b:c", "\xff"],
    "origin": ["null", "http://", "http://[::1", "\xff"],
    "content-type": [
        "application/json",
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/json; \xff",
    ],
    "sec-fetch-site": ["same-origin", "cross-site", "none", "\xff"],
}


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...]


def fields(app: Penstock, ids: dict[str, str]) -> tuple[list[str], list[str]]:
    """The names that pages read from addresses and acts from forms: those of the forms and links that pages show."""
    ann = browser(app)
    asked, sent = {"q", "before", "after", "status"}, {"id", "back", "why"}
    several = [*ids.values()]
    names = {"pipeline": [f"pipe {NAME}"], "schedule": [f"schedule {NAME}"]}
    for path in addresses({"jobs": several, "runs": several}, names):
        found = Markup(ann.get(path).text)
        for form in found.forms:
            (asked if form.method == "get" else sent).update(form.fields)
        asked.update(name for link in found.links for name in re.findall(r"[?&](\w+)=", link))
    return sorted(asked), sorted(sent)


def requests(ids: dict[str, str], asked: list[str], sent: list[str]) -> st.SearchStrategy[Asked]:
    text = st.one_of(st.sampled_from(TEXTS), st.text(max_size=12), st.sampled_from([*ids.values()]))
    query = st.dictionaries(st.sampled_from(asked), text, max_size=4).map(_encoded)
    id = st.one_of(
        st.sampled_from([*ids.values()]), text.map(lambda given: quote(given, "", errors="replace"))
    )
    place = st.tuples(
        st.sampled_from([route.path for route in ROUTES]), id, st.sampled_from(["", ".json", "/", ".JSON"])
    )
    page = st.tuples(place, query).map(
        lambda drawn: re.sub(r"\{\w+\}", lambda _: drawn[0][1], drawn[0][0]) + drawn[0][2] + f"?{drawn[1]}"
    )
    headers = st.lists(
        st.sampled_from([(name, value) for name, values in HEADERS.items() for value in values]), max_size=3
    ).map(lambda pairs: tuple(dict(pairs).items()))
    look = st.builds(Asked, st.sampled_from(["GET", "HEAD", "OPTIONS", "PATCH"]), page, st.just(b""), headers)
    form = st.dictionaries(st.sampled_from(sent), text, max_size=6)
    value = st.one_of(
        text, st.none(), st.integers(), st.floats(), st.lists(text, max_size=2), st.just({"a": []})
    )
    document = st.dictionaries(st.sampled_from(sent), value, max_size=6).map(
        lambda fields: json.dumps(fields).encode()
    )
    act = st.sampled_from([act.name for act in EVERY_ACT]).map(lambda name: f"/act/{name}")
    origin = ("sec-fetch-site", "same-origin")
    by_form = st.builds(
        Asked,
        st.just("POST"),
        act,
        form.map(lambda fields: _encoded(fields).encode()),
        st.just((origin, ("content-type", "application/x-www-form-urlencoded"))),
    )
    by_json = st.builds(
        Asked, st.just("POST"), act, document, st.just((origin, ("content-type", "application/json")))
    )
    odd = st.builds(Asked, st.sampled_from(["POST", "PUT"]), act, st.sampled_from(BODIES), headers)
    return st.one_of(look, look, by_form, by_json, odd)


def _encoded(fields: dict[str, Any]) -> str:
    return urlencode(fields, errors="replace")


@pytest.mark.slow
@pytest.mark.parametrize("door", ["wsgi", "asgi"])
def test_every_request_is_answered(app: Penstock, door: str, caplog: pytest.LogCaptureFixture) -> None:
    ids = fill(app)
    ann = browser(app, door=door)

    @settings(
        max_examples=CASES, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(requests(ids, *fields(app, ids)))
    def answered(asked: Asked) -> None:
        _answered(ann, asked)

    answered()
    for path in (
        "/jobs?" + "a=1&" * 5000,
        f"/jobs?task={'x' * 200_000}",
        "/" + "a/" * 3000,
        "/jobs/%2e%2e/%00",
    ):
        _answered(ann, Asked("GET", path, b"", ()))
    for body in BODIES:
        for kind in ("application/json", "application/x-www-form-urlencoded"):
            for act in EVERY_ACT:
                given_headers = (("sec-fetch-site", "same-origin"), ("content-type", kind))
                _answered(ann, Asked("POST", f"/act/{act.name}", body, given_headers))
    assert not [record for record in caplog.records if record.exc_info]


def _answered(ann: Browser, asked: Asked) -> None:
    answer = ann.send(asked.method, asked.path, asked.body, dict(asked.headers))
    assert answer.status < 500, (asked, answer.status, answer.text[:1000])
    if "location" in answer.headers:
        assert answer.headers["location"].startswith("/ops/"), (asked, answer.headers)
    if answer.headers.get("content-type", "").startswith("text/html") and answer.body:
        found = Markup(answer.text)
        assert not found.dangers, (asked, found.dangers)
        assert not found.broken, (asked, found.broken)
    for name, value in answer.headers.items():
        assert "\n" not in value, (asked, name)
