"""The dashboard: one synchronous handler from a request to a response, with an ASGI and a WSGI door.

A request goes through here in this order: a file of the dashboard's own; the decision who asks (`access.py`); an act
(`acts.py`) or a page (`pages/`). A page whose data has not changed is answered 304 without its HTML.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import inspect
import json
import logging
import time
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.dashboard import asgi, assets, wsgi
from penstock.dashboard.access import READING, AccessDecision, Guard, Right, Viewer, refuses_as_cross_site
from penstock.dashboard.acts import ACTS, DashboardAct, Done, Form, WrongForm
from penstock.dashboard.conditional import BuiltPage, Content, Pulse
from penstock.dashboard.http import LONGEST_BODY, Request, Response, as_json, redirect
from penstock.dashboard.job_acts import JOB_ACTS
from penstock.dashboard.logins import COOKIE, FailureLimit, LinkLogin, PasswordLogin
from penstock.dashboard.pages import NAVIGATION, Route, find
from penstock.dashboard.render import render
from penstock.dashboard.request_ids import MARK, once_of, sent_before, with_ids
from penstock.dashboard.run_acts import RUN_ACTS
from penstock.dashboard.schedule_acts import SCHEDULE_ACTS
from penstock.dashboard.troubles import Troubles
from penstock.dashboard.views import NotAllowed, NotFound, Redact, View
from penstock.errors import DatabaseUnavailable, PenstockError, ReadTimeout
from penstock.operate.jobs import UnknownId
from penstock.operate.pages.charts import SegmentMemory
from penstock.values.ids import choosing
from penstock.values.plain import plain

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.database.transaction import Transaction

log = logging.getLogger("penstock")

NOTICE = "penstock_notice"
LONGEST_NOTICE = 600
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
CONDITIONAL = (("Cache-Control", "private, no-cache"), ("Vary", "Accept, Authorization, Cookie"))
CLOSED = (
    "This dashboard is closed: no guard was given. Give one, app.dashboard(guard=...), or set dashboard_password "
    "(PENSTOCK_DASHBOARD_PASSWORD) for basic authentication. On your own machine: penstock dashboard MODULE:APP"
)
ERRORS: tuple[tuple[type[PenstockError], tuple[int, str]], ...] = (
    (NotFound, (404, "Not found")),
    (UnknownId, (404, "Not found")),
    (NotAllowed, (403, "Not allowed")),
    (ReadTimeout, (503, "This took too long")),
    (DatabaseUnavailable, (503, "The database cannot be reached")),
    (PenstockError, (400, "This cannot be done")),
)
"""Errors that become a page: the status and the title. The first class that fits counts."""
EVERY_ACT = (*ACTS, *JOB_ACTS, *RUN_ACTS, *SCHEDULE_ACTS)
STATIC = "/static/"
ACT = "/act/"
LOGIN = "/login"


class Dashboard:
    """The pages of one app, as an ASGI application; `dashboard.wsgi` is the same for WSGI."""

    def __init__(
        self,
        app: Penstock,
        guard: Guard | None = None,
        *,
        read_only: bool = False,
        redact: Redact | None = None,
        title: str | None = None,
        prefix: str | None = None,
        link: LinkLogin | None = None,
    ) -> None:
        self.app = app
        self.title = title or "Penstock"
        self._guard = guard
        self._read_only = read_only
        self._redact = redact
        self._prefix = None if prefix is None else prefix.rstrip("/")
        self._link = link
        settings = app.settings
        password = settings.dashboard_password
        self._password = None if password is None else PasswordLogin(settings.dashboard_user, password)
        self._failures = FailureLimit()
        self._pulse = Pulse(self._commit_stamp)
        self._troubles = Troubles(app)
        self._charts = SegmentMemory()
        self._acts = {act.name: act for act in EVERY_ACT}

    # the doors

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        await asgi.serve(self, scope, receive, send)

    def wsgi(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """The WSGI application."""
        return wsgi.serve(self, environ, start_response)

    def respond(self, request: Request) -> Response:
        """Answer a request in this thread. An async guard gets an event loop for the time of its call."""
        if (file := _file(request)) is not None:
            return file
        return self._answer(request, self._shield(request, lambda: self._admit(request)))

    async def answer(self, request: Request) -> Response:
        """Answer a request of an event loop: the guard there if it is async, the rest in a thread."""
        if (file := _file(request)) is not None:
            return file
        return await self.app.bridge.run(self._answer, request, await self.admission(request))

    async def admission(self, request: Request) -> AccessDecision:
        if self._guard is not None and _is_async(self._guard):
            try:
                found = await self._guard(request)  # type: ignore[misc]
            except Exception:
                return self._broken(request)
            return self._decided(request, found)
        return await self.app.bridge.run(self._shield, request, lambda: self._admit(request))

    async def latest_stamp(self) -> str:
        """A text that changes when anything may have changed."""
        fresh = self._pulse.fresh_stamp
        return await self.app.bridge.run(self.stamp) if fresh is None else fresh

    def stamp(self) -> str:
        """The stamp of the database's commits. Read at most once a second, however many pages are open."""
        return self._pulse.stamp()

    def _commit_stamp(self) -> str | None:
        def look(tx: Transaction) -> str | None:
            return tx.dialect.commit_stamp(tx)

        return self.app.database.read_briefly(self.app.settings.dashboard_timeout, look)

    # finding the viewer

    def _admit(self, request: Request) -> AccessDecision:
        if self._link is not None:
            return self._by_link(request, self._link)
        if self._guard is not None:
            found = self._guard(request)
            return self._decided(request, _run(found) if inspect.isawaitable(found) else found)
        if self._password is not None:
            return self._by_password(request, self._password)
        return AccessDecision(refusal=self._message(request, 403, "Closed", CLOSED))

    def _by_link(self, request: Request, link: LinkLogin) -> AccessDecision:
        if request.path == LOGIN and request.is_safe:
            return AccessDecision(refusal=self._log_in(request, link))
        viewer = link.viewer(request)
        if viewer is None:
            advice = "Open the link that `penstock dashboard` has printed. It works once; start it again for another."
            return AccessDecision(refusal=self._message(request, 401, "Not signed in", advice))
        return self._decided(request, viewer)

    def _log_in(self, request: Request, link: LinkLogin) -> Response:
        if self._failures.is_reached(request.client):
            return self._message(request, 429, "Too many tries", "Wait for a minute.")
        session = link.redeem(request.query.get("key", [""])[0])
        if session is None:
            self._failures.count(request.client)
            return self._message(
                request, 401, "Not signed in", "This link was used before, or is not the newest one."
            )
        path = self._mount(request) or "/"
        cookie = f"{COOKIE}={session}; Path={path}; HttpOnly; SameSite=Lax"
        return redirect(f"{self._mount(request)}/").with_headers(("Set-Cookie", cookie))

    def _by_password(self, request: Request, login: PasswordLogin) -> AccessDecision:
        if self._failures.is_reached(request.client):
            refused = self._message(request, 429, "Too many tries", "Wait for a minute, then sign in again.")
            return AccessDecision(refusal=refused.with_headers(("Retry-After", "60")))
        viewer = login.viewer(request)
        if viewer is not None:
            return self._decided(request, viewer)
        if login.was_tried(request):
            self._failures.count(request.client)
        asked = ("WWW-Authenticate", 'Basic realm="Penstock", charset="UTF-8"')
        refused = self._message(
            request, 401, "Not signed in", "Sign in with the dashboard's user and password."
        )
        return AccessDecision(refusal=refused.with_headers(asked))

    def _decided(self, request: Request, found: Viewer | Response | None) -> AccessDecision:
        if isinstance(found, Response):
            return AccessDecision(refusal=found)
        if isinstance(found, Viewer) and self._read_only:
            found = found.only(READING)
        if not isinstance(found, Viewer) or not found.may(Right.LOOK):
            refused = self._message(request, 403, "Not allowed", "You are not allowed to see this dashboard.")
            return AccessDecision(refusal=refused)
        return AccessDecision(found)

    # answering

    def _answer(self, request: Request, admission: AccessDecision) -> Response:
        viewer = admission.viewer
        if admission.refusal is not None or viewer is None:
            return admission.refusal or self._message(request, 403, "Not allowed", CLOSED)
        found = self._shield(
            request, lambda: AccessDecision(refusal=self._for_viewer(request, viewer)), viewer
        )
        assert found.refusal is not None
        return found.refusal

    def _shield(
        self, request: Request, work: Callable[[], AccessDecision], viewer: Viewer | None = None
    ) -> AccessDecision:
        """Call a function, and answer its errors with a page: the framework's own error handling is not used."""
        try:
            return work()
        except PenstockError as error:
            status, title = next(told for kind, told in ERRORS if isinstance(error, kind))
            return AccessDecision(refusal=self._message(request, status, title, str(error), viewer))
        except Exception:
            return self._broken(request, viewer)

    def _broken(self, request: Request, viewer: Viewer | None = None) -> AccessDecision:
        log.exception("the dashboard could not answer %s %s", request.method, request.path)
        words = "The dashboard met an error, which is in the log of its process."
        return AccessDecision(refusal=self._message(request, 500, "Something broke", words, viewer))

    def _for_viewer(self, request: Request, viewer: Viewer) -> Response:
        if request.path.startswith(ACT):
            return self._act(request, viewer)
        if not request.is_safe:
            return self._message(request, 405, "Not allowed", "Pages are only looked at: send GET.")
        route, args = find(request.path.removesuffix(".json"))
        view = self._view(request, viewer, args)
        self.app.prepare()
        tag, key = request.headers.get("if-none-match", ""), _key(view)
        if not tag or request.cookie(NOTICE) or _is_navigation(request):
            return self._page(view, route, self._pulse.keep(key, self._build(view, route)))
        found = self._pulse.find(key)
        if found is not None and tag == self._tag(view, found):
            return self._unchanged(tag)
        return self._page(view, route, self._pulse.shared(key, lambda: self._build(view, route)))

    def _build(self, view: View, route: Route) -> BuiltPage:
        at, stamp = time.monotonic(), self.stamp()
        page = route.page(view)
        data = plain(page.data)
        digest = hashlib.sha256(json.dumps(data, default=str).encode()).hexdigest()
        return BuiltPage(digest, stamp, at, Content(page, data))

    def _view(self, request: Request, viewer: Viewer, args: dict[str, str] | None = None) -> View:
        seconds = self.app.settings.dashboard_timeout
        shared = (self._troubles, self._charts)
        return View(self.app, self._mounted(request), viewer, args or {}, self._redact, seconds, *shared)

    def _mount(self, request: Request) -> str:
        return request.prefix if self._prefix is None else self._prefix

    def _mounted(self, request: Request) -> Request:
        if self._prefix is None:
            return request
        given = {name: getattr(request, name) for name in Request.__slots__}
        return Request(**given | {"prefix": self._prefix})

    # pages

    def _page(self, view: View, route: Route, built: BuiltPage) -> Response:
        content = built.content or self._build(view, route).content
        assert content is not None
        page, data = content.page, content.data
        if page.to is not None and not view.request.wants_json:
            return redirect(view.request.prefix + page.to).with_headers(("Cache-Control", "no-store"))
        notice = view.request.cookie(NOTICE)
        tag = self._tag(view, built)
        is_known = view.request.headers.get("if-none-match") == tag
        if is_known and not notice and not _is_navigation(view.request):
            return self._unchanged(tag)
        headers = (("ETag", tag), *CONDITIONAL)
        if view.request.wants_json:
            return as_json(data, page.status).with_headers(*headers, *SECURITY)
        html = None if notice else content.html.get(view.viewer.name)
        if html is None:
            values = self._values(view, page.title, page.section or route.section)
            html = render(page.template, values | {"page": data, "notice": _read_notice(notice)})
        if not notice:
            content.keep(view.viewer.name, html)
        ending = [_notice_cookie("", self._mount(view.request))] if notice else []
        return Response(page.status, with_ids(html), headers=(*headers, *SECURITY, *ending))

    def _unchanged(self, tag: str) -> Response:
        return Response(304, headers=(("ETag", tag), *CONDITIONAL))

    def _tag(self, view: View, built: BuiltPage) -> str:
        seen: list[object] = [self.title, assets.version(), view.viewer.name, sorted(view.viewer.rights)]
        seen += [view.request.wants_json, view.request.prefix, built.digest]
        written = json.dumps(seen, default=str).encode()
        return f'"{hashlib.sha256(written).hexdigest()[:20]}"'

    def _values(self, view: View, title: str, section: str) -> dict[str, object]:
        """The names that every template has."""
        return {
            "title": title,
            "app_title": self.title,
            "section": section,
            "navigation": NAVIGATION,
            "viewer": view.viewer,
            "view": view,
            "url": view.url,
            "here": view.here,
            "static": lambda name: view.request.prefix + STATIC + assets.names()[name],
            "act": lambda name: view.url(f"{ACT}{name}"),
            "may": view.may,
            "once": MARK,
            "notice": None,
        }

    def _message(
        self, request: Request, status: int, title: str, words: str, viewer: Viewer | None = None
    ) -> Response:
        """A page with one message, such as why there is no other page. A known viewer keeps the navigation."""
        headers = (("Cache-Control", "no-store"), *SECURITY)
        if request.wants_json:
            return as_json({"status": status, "title": title, "message": words}, status).with_headers(
                *headers
            )
        view = self._view(request, viewer or Viewer("", ()))
        back = None if viewer is None else _back(request)
        values = self._values(view, title, "") | {"page": {"message": words, "status": status, "back": back}}
        html = render("message.html", values if viewer else values | {"navigation": ()})
        return Response(status, html, headers=headers)

    # acts

    def _act(self, request: Request, viewer: Viewer) -> Response:
        """Perform an act. Method, site, size, existence and right are checked here, in this order."""
        if request.method != "POST":
            return self._message(request, 405, "Not allowed", "An act is asked for with POST.", viewer)
        if (reason := refuses_as_cross_site(request)) is not None:
            return self._message(request, 403, "Refused", f"This request was refused: {reason}.", viewer)
        if len(request.body) > LONGEST_BODY:
            return self._message(
                request, 413, "Too large", f"At most {LONGEST_BODY:,} bytes can be sent.", viewer
            )
        act = self._acts.get(request.path.removeprefix(ACT).removesuffix(".json"))
        if act is None:
            raise NotFound("there is no act of this name")
        if not viewer.may(act.right):
            words = f"This needs the right {act.right.value!r}, which {viewer.name} does not have."
            return self._message(request, 403, "Not allowed", words, viewer)
        view = self._view(request, viewer)
        try:
            form = request.form()
        except ValueError as error:
            raise WrongForm(f"the form cannot be read: {error}") from error
        self.app.prepare()
        if (further := act.lacking(view, form)) is not None:
            view.demand(further)
        done = self._perform(act, view, form)
        self._pulse.look_again()
        return self._done(view, form.get("back"), done)

    def _perform(self, act: DashboardAct, view: View, form: Form) -> Done:
        """Perform the act under the viewer's name, and once, also if the form comes twice at the same moment."""
        once, why = once_of(form), form.get("why")
        if (before := sent_before(view, once)) is not None:
            return before
        try:
            with (
                self.app.acting(by=view.viewer.name, why=str(why)[:LONGEST_NOTICE] if why else None),
                choosing(once),
            ):
                return act.perform(view, form)
        except Exception:
            if (before := sent_before(view, once)) is None:
                raise
            return before

    def _done(self, view: View, back: object, done: Done) -> Response:
        if view.request.wants_json:
            told = {"message": done.message, "ok": not done.bad, **plain_mapping(done.data)}
            return as_json(told, 409 if done.bad else 200).with_headers(("Cache-Control", "no-store"))
        to = done.to or (back if isinstance(back, str) and _is_path(back) else "/")
        kind = "bad" if done.bad else "good"
        notice = _notice_cookie(f"{kind} {done.message}", self._mount(view.request))
        return redirect(view.request.prefix + to).with_headers(notice)


def _key(view: View) -> Hashable:
    request = view.request
    fields = tuple((name, *values) for name, values in sorted(request.query.items()))
    place = (request.path, request.prefix, request.wants_json, view.streams)
    return *place, fields, frozenset(view.viewer.rights)


def _back(request: Request) -> str | None:
    """The page from which a form was sent, if the form says so."""
    try:
        found = request.form().get("back") if request.method == "POST" else None
    except ValueError:
        return None
    return found if isinstance(found, str) and _is_path(found) else None


def _is_navigation(request: Request) -> bool:
    """True if a person opens or reloads the page: its forms then get new ids, which a remembered page does not have."""
    return request.headers.get("sec-fetch-mode") == "navigate"


def plain_mapping(data: object) -> dict[str, object]:
    found = plain(data)
    assert isinstance(found, dict)
    return found


def _file(request: Request) -> Response | None:
    """A file of the dashboard itself. Every visitor may load it: a page that refuses also needs the stylesheet."""
    if not request.path.startswith(STATIC) or not request.is_safe:
        return None
    found = assets.asset(request.path.removeprefix(STATIC))
    if found is None:
        return Response(404, b"there is no such file", "text/plain; charset=utf-8")
    return found.with_headers(("X-Content-Type-Options", "nosniff"))


def _is_async(guard: Guard) -> bool:
    return inspect.iscoroutinefunction(guard) or inspect.iscoroutinefunction(type(guard).__call__)


def _run(found: Any) -> Viewer | Response | None:
    async def awaited() -> Viewer | Response | None:
        answer: Viewer | Response | None = await found
        return answer

    return asyncio.run(awaited())


def _is_path(text: str) -> bool:
    """True if this is the path of a page of the dashboard, and not an address elsewhere."""
    return (
        text.startswith("/") and not text.startswith(("//", "/\\")) and text.isascii() and text.isprintable()
    )


def _notice_cookie(text: str, mount: str) -> tuple[str, str]:
    value = base64.urlsafe_b64encode(text[:LONGEST_NOTICE].encode("utf-8", "replace")).decode()
    age = 60 if text else 0
    path = mount or "/"
    return "Set-Cookie", f"{NOTICE}={value}; Path={path}; Max-Age={age}; HttpOnly; SameSite=Strict"


def _read_notice(cookie: str) -> dict[str, str] | None:
    """The notice that the last act left for the next page."""
    try:
        kind, _, words = base64.urlsafe_b64decode(cookie.encode()).decode().partition(" ")
    except ValueError:
        return None
    return {"kind": "bad" if kind == "bad" else "good", "message": words} if words else None
