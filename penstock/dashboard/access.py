"""Decides who may look and act: the one place through which every request and every act goes.

The dashboard is closed unless a guard, a password or a local key is given. A right is checked where an act is done,
never by hiding its button. A request that changes something must come from a page of the dashboard itself: the
browser says so in `Sec-Fetch-Site`, or, if it is older, in `Origin`; without either it is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from penstock.dashboard.http import Request, Response
from penstock.errors import ConfigurationError
from penstock.values.actor import LONGEST_BY
from penstock.values.parse import nearest

DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Right(StrEnum):
    """A right: something that a viewer may do."""

    LOOK = "look"
    """See pages."""
    PAYLOADS = "payloads"
    """See arguments, results, error messages and tracebacks."""
    JOBS = "jobs"
    """Retry, cancel and discard jobs; to cancel a step needs RUNS beside."""
    RUNS = "runs"
    """Pause, resume, cancel, revive, signal and fork runs."""
    SCHEDULES = "schedules"
    """Pause, resume, trigger, backfill, edit and delete schedules; create them and change their calls with ENQUEUE."""
    ENQUEUE = "enqueue"
    """Start work with arguments of one's own: new jobs and runs."""
    OPERATE = "operate"
    """Hint reconcilers, and ask processes for their stacks."""


EVERY_RIGHT = frozenset(Right)
READING = frozenset({Right.LOOK, Right.PAYLOADS})


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person or program that looks: the name for the audit trail, and rights, by default only to look.

    `rights` is "all", or the names of some: `Viewer("ann", ["look", "payloads", "jobs"])`.
    """

    name: str
    rights: frozenset[Right] | Iterable[str] | str = frozenset({Right.LOOK})

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", str(self.name)[:LONGEST_BY])
        object.__setattr__(self, "rights", _rights(self.rights))

    def may(self, right: Right) -> bool:
        return right in self.rights

    def only(self, rights: frozenset[Right]) -> Viewer:
        """A copy of the viewer that has no other rights than these."""
        return Viewer(self.name, rights.intersection(self.rights))


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """The decision about a request: a viewer, or the response that refuses it."""

    viewer: Viewer | None = None
    refusal: Response | None = None


Guard = Callable[[Request], Viewer | Response | Awaitable[Viewer | Response | None] | None]
"""Names the viewer of a request. None refuses the request; a response, such as a redirect to a login, is sent
instead."""


def refuses_as_cross_site(request: Request) -> str | None:
    """The reason why a request that changes something is refused; None if it comes from a page of the dashboard."""
    if request.is_safe:
        return None
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return None if site == "same-origin" else f"the browser says that it comes from another site ({site})"
    origin = request.headers.get("origin")
    if origin is None:
        return "it has neither Sec-Fetch-Site nor Origin. A script sends Origin: the address of the dashboard"
    if not request.host or not _is_same(origin, request.host):
        return f"its Origin is {origin}, and this is {request.host}"
    return None


def _is_same(origin: str, host: str) -> bool:
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    place = _without_default_port(found.netloc.lower(), found.scheme)
    return place == _without_default_port(host, found.scheme)


def _without_default_port(host: str, scheme: str) -> str:
    return host.removesuffix(DEFAULT_PORTS.get(scheme, ":"))


def _rights(given: Iterable[str] | str) -> frozenset[Right]:
    if given == "all":
        return EVERY_RIGHT
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        if name not in EVERY_RIGHT:
            raise ConfigurationError(f"there is no right {name!r}{nearest(str(name), list(Right))}")
    return frozenset(map(Right, names))
