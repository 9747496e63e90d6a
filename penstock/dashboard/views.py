"""The values that pages are made of: `View` is the request for a page with all that the page may use, `Page` its
answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from penstock.dashboard.access import Right, Viewer
from penstock.dashboard.http import Request, address
from penstock.errors import PenstockError
from penstock.values.ids import checked_id
from penstock.values.typed_json.json_text import loads

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.dashboard.troubles import Trouble, Troubles
    from penstock.database.transaction import Transaction
    from penstock.operate.pages.charts import SegmentMemory

P = ParamSpec("P")
R = TypeVar("R")

SHOWN = 20_000
"""Characters of a payload, a result, an error or a traceback that a page shows."""
LONGEST_QUERY = 1000

Redact = Callable[[str, str, object], object]
"""Called with the task's name, the kind ("arguments", "result", "error", "traceback", "context", "progress")
and the value."""


class NotFound(PenstockError):
    """Raised if there is nothing at this address."""


class NotAllowed(PenstockError):
    """Raised if the viewer lacks the right to the page at this address."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A value that may be cut, or hidden from this viewer. `text` is None if it is hidden."""

    text: str | None
    cut: bool = False
    """True if there is more than is shown."""
    size: int = 0
    """The length of the whole value, in characters."""


@dataclass(frozen=True, slots=True)
class View:
    """A request for a page, its viewer, and the app. `args` are the ids in the path."""

    app: Penstock
    request: Request
    viewer: Viewer
    args: Mapping[str, str] = field(default_factory=dict)
    redact: Redact | None = None
    seconds: float = 5.0
    """Longest time for one statement."""
    doctor: Troubles | None = None
    charts: SegmentMemory | None = None

    def read(self, work: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function of `operate` that only reads."""
        return self.app.database.read_briefly(self.seconds, work, *args, **kwargs)

    def troubles(self) -> list[Trouble] | None:
        """The latest findings of the doctor; None: nothing is known yet."""
        return None if self.doctor is None else self.doctor.latest()

    @property
    def sees_everything(self) -> bool:
        """True if arguments and errors are shown to the viewer as they are: only then may they be searched."""
        return self.may(Right.PAYLOADS) and self.redact is None

    @property
    def streams(self) -> bool:
        """True if the server offers notices of changes as a stream: it speaks ASGI."""
        return isinstance(self.request.native, Mapping) and "asgi" in self.request.native

    def may(self, right: Right | str) -> bool:
        return self.viewer.may(Right(right))

    def demand(self, right: Right | str) -> None:
        """Refuse the page to a viewer without this right: a form that the viewer could not send is not shown."""
        if not self.may(right):
            raise NotAllowed(
                f"This needs the right {Right(right).value!r}, which {self.viewer.name} does not have."
            )

    # the query string

    def text(self, name: str) -> str | None:
        """A field of the query string; None if it is missing or empty."""
        value = self.request.query.get(name, [""])[-1].strip()
        return value[:LONGEST_QUERY] or None

    def id(self, name: str) -> str | None:
        """A field that is an id; None if it is missing, or not an id."""
        try:
            return checked_id(self.text(name))
        except PenstockError:
            return None

    def whole(self, name: str, default: int, most: int) -> int:
        """A field that is a whole number from 1 to `most`."""
        given = self.text(name) or ""
        return max(1, min(most, int(given))) if given.isascii() and given.isdigit() else default

    def url(self, path: str, /, **query: object) -> str:
        """The address of a page of the dashboard, wherever the dashboard is mounted."""
        return self.request.prefix + address(path, query)

    def here(self, **changes: object) -> str:
        """The address of this page with some fields of the query string changed; None removes one."""
        query: dict[str, object] = dict(self.request.query.items())
        return self.url(self.request.path, **(query | changes))

    @property
    def place(self) -> str:
        """The path and query string of this page, for the field `back` of a form."""
        return address(self.request.path, dict(self.request.query.items()))

    # values that not every viewer may see

    def shown(self, task: str, kind: str, text: str | None, most: int = SHOWN) -> Shown | None:
        """Arguments, a result or an error as this viewer may see them: hidden, redacted, cut to a page's size."""
        if text is None:
            return None
        if not self.may(Right.PAYLOADS):
            return Shown(None, size=len(text))
        if self.redact is not None:
            text = self._redacted(task, kind, text)
        return Shown(text[:most], len(text) > most, len(text))

    def _redacted(self, task: str, kind: str, text: str) -> str:
        assert self.redact is not None
        if kind in ("error", "traceback", "progress"):
            return str(self.redact(task, kind, text))
        return _json(self.redact(task, kind, loads(text)))


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its template, its title, and its data, which is also its JSON twin."""

    template: str
    title: str
    data: Mapping[str, object]
    status: int = 200
    section: str = ""
    """The entry of the navigation that is marked; by default the first word of the address."""
    to: str | None = None
    """A path of the dashboard to which a person is redirected (303); the JSON twin is answered as it is."""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
