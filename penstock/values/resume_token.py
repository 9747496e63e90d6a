"""Resume tokens: the permission to give one signal, signed, so that it can be sent by mail and come back by a link.

`ps1.<what>.<signature>`: what is JSON in URL-safe base64, the signature an HMAC with SHA-256 over the version, the
place (which tables of which installation) and the very characters of the middle part. Nothing in it is secret; nothing
in it can be changed. Anybody who has it may use it, once, until it expires.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import PenstockError, TokenForged
from penstock.values.typed_json.json_text import dumps, loads

VERSION = "ps1"
LONGEST = 4096
Path = tuple[int, ...]


class Ticket(NamedTuple):
    """The permission in a token: to give this signal to this run, or to one element of it, until an instant of the
    database's clock (in microseconds)."""

    run: str
    signal: str
    path: Path
    expires: int


def sign(secrets: Sequence[str], place: str, ticket: Ticket) -> str:
    """The token, signed with the first secret."""
    told = dumps([ticket.run, ticket.signal, list(ticket.path), ticket.expires])
    body = _text(told.encode())
    return f"{VERSION}.{body}.{_signature(secrets[0], place, body)}"


def read(secrets: Sequence[str], place: str, token: object) -> Ticket:
    """Read the permission in a token, if it was signed with one of the secrets; raises `TokenForged`."""
    if not isinstance(token, str) or len(token) > LONGEST or not token.isascii():
        raise TokenForged(_WRONG)
    version, _, rest = token.partition(".")
    body, _, signature = rest.partition(".")
    # Every secret is tried, and every comparison looks at all of it: how long it takes tells nothing.
    matches = [hmac.compare_digest(_signature(secret, place, body), signature) for secret in secrets]
    if version != VERSION or not any(matches):
        raise TokenForged(_WRONG)
    return _ticket(body)


def fingerprint(token: str) -> str:
    """A digest that identifies a token and cannot be used as one."""
    return hashlib.sha256(token.encode()).hexdigest()[:12]


_WRONG = (
    "this token was not made by this installation, or was changed on its way. Ask for a new one: run.token(...). "
    "If the secret was replaced, keep the old one behind it: secret=[new, old]"
)


def _ticket(body: str) -> Ticket:
    try:
        told = loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode())
        assert isinstance(told, list)
        run, signal, path, expires = told
        return Ticket(str(run), str(signal), tuple([int(index) for index in path]), int(expires))
    except (ValueError, AssertionError, TypeError, PenstockError):
        raise TokenForged(_WRONG) from None


def _signature(secret: str, place: str, body: str) -> str:
    message = "\0".join([VERSION, place, body]).encode()
    return _text(hmac.digest(secret.encode(), message, "sha256"))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
