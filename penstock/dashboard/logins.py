"""The dashboard's own logins: a password from the settings, and the one-time link of the local server.

Secrets are compared in constant time. Failed tries are counted by address; after too many, further tries are refused
for a minute without a look at the password, so that a password cannot be guessed by trying.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import threading
import time
from collections import deque

from penstock.dashboard.access import EVERY_RIGHT, Viewer
from penstock.dashboard.http import Request

MOST_FAILURES = 10
"""Failed tries that are allowed in a minute, from one address."""
MOST_ADDRESSES = 10_000
MINUTE = 60.0
COOKIE = "penstock_session"
SESSION_BYTES = 32


class FailureLimit:
    """Counts failed logins by address over the last minute."""

    def __init__(self) -> None:
        self._failures: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def is_reached(self, client: str) -> bool:
        """True if this address has failed too often within a minute."""
        with self._lock:
            return len(self._recent(client)) >= MOST_FAILURES

    def count(self, client: str) -> None:
        with self._lock:
            if len(self._failures) >= MOST_ADDRESSES:
                self._failures = {
                    known: times for known in [*self._failures] if (times := self._recent(known))
                }
            self._failures.setdefault(client, deque(maxlen=MOST_FAILURES)).append(time.monotonic())

    def _recent(self, client: str) -> deque[float]:
        times = self._failures.get(client, deque())
        while times and times[0] < time.monotonic() - MINUTE:
            times.popleft()
        return times


class PasswordLogin:
    """HTTP basic authentication with one user and one password."""

    def __init__(self, user: str, password: str) -> None:
        self._expected = f"{user}:{password}".encode()
        self._user = user

    def viewer(self, request: Request) -> Viewer | None:
        given = _credentials(request)
        return Viewer(self._user, EVERY_RIGHT) if _equal(given, self._expected) else None

    def was_tried(self, request: Request) -> bool:
        """True if the request names a user: the first request of a browser does not."""
        return request.headers.get("authorization", "") != ""


class LinkLogin:
    """A link with a key that works once, and the session that it opens: for the server on the user's own machine."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._key: bytes | None = None
        self._sessions: list[bytes] = []
        self._lock = threading.Lock()

    def new_key(self) -> str:
        """Make a key for the next link; the key before it no longer works."""
        key = secrets.token_urlsafe(SESSION_BYTES)
        with self._lock:
            self._key = key.encode()
        return key

    def redeem(self, key: str) -> str | None:
        """The session for a key, which is then used up; None if the key is wrong, or was used before."""
        with self._lock:
            if self._key is None or not hmac.compare_digest(self._key, key.encode()):
                return None
            self._key = None
            session = secrets.token_urlsafe(SESSION_BYTES)
            self._sessions.append(session.encode())
            return session

    @property
    def was_used(self) -> bool:
        """True if a key was redeemed."""
        return bool(self._sessions)

    def viewer(self, request: Request) -> Viewer | None:
        given = request.cookie(COOKIE).encode()
        with self._lock:
            known = [hmac.compare_digest(session, given) for session in self._sessions]
        return Viewer(self._name, EVERY_RIGHT) if any(known) else None


def _credentials(request: Request) -> bytes:
    kind, _, coded = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return b""
    try:
        return base64.b64decode(coded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _equal(given: bytes, expected: bytes) -> bool:
    return hmac.compare_digest(given, expected)
