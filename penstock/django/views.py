"""The dashboard as a view of Django's, under WSGI and ASGI alike, for users whom Django knows.

Users who are staff and have the permission `penstock.view_dashboard` may look; what they may do is said by further
permissions, and a superuser may do everything. Cross-site requests are refused by the dashboard itself, which needs no
token for that.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, reverse
from django.views.decorators.csrf import csrf_exempt

from penstock.dashboard import Dashboard, Request, Response, Viewer
from penstock.dashboard.access import Right
from penstock.dashboard.http import read_query
from penstock.django.application import the_app

RIGHTS = {
    "penstock.view_dashboard": [Right.LOOK],
    "penstock.view_payloads": [Right.PAYLOADS],
    "penstock.operate_dashboard": [Right.JOBS, Right.RUNS, Right.SCHEDULES, Right.OPERATE],
    "penstock.enqueue_work": [Right.ENQUEUE],
}
"""By permission of Django's: what a user may do."""


@csrf_exempt
def dashboard(request: HttpRequest, path: str = "") -> HttpResponse:
    """Answer a request for a page or an act."""
    return _sent(_dashboard().respond(_request(request, path)))


def staff(request: Request) -> Viewer | Response | None:
    """The guard: the user of the request and its rights. A visitor who is not signed in is sent to the login."""
    native = cast("Any", request.native)
    user = getattr(native, "user", None)
    if user is None or not user.is_authenticated:
        to = f"{_login()}?{urlencode({'next': native.get_full_path()}, safe='/')}"
        return Response(302, headers=(("Location", to), ("Cache-Control", "no-store")))
    if not (user.is_active and user.is_staff):
        return None
    if user.is_superuser:
        return Viewer(user.get_username(), "all")
    rights = [right for permission, rights in RIGHTS.items() if user.has_perm(permission) for right in rights]
    return Viewer(user.get_username(), rights) if Right.LOOK in rights else None


@cache
def _dashboard() -> Dashboard:
    return Dashboard(the_app(), staff)


def _login() -> str:
    """The admin's login if there is an admin, else the project's."""
    try:
        return str(reverse("admin:login"))
    except NoReverseMatch:
        return str(resolve_url(settings.LOGIN_URL))


def _request(request: HttpRequest, path: str) -> Request:
    whole = request.path
    return Request(
        str(request.method).upper(),
        f"/{path}",
        whole.removesuffix(path).rstrip("/"),
        read_query(request.META.get("QUERY_STRING", "")),
        {name.lower(): value for name, value in request.headers.items()} | {"host": request.get_host()},
        request.body,
        str(request.scheme),
        request.META.get("REMOTE_ADDR", ""),
        request,
    )


def _sent(response: Response) -> HttpResponse:
    sent = HttpResponse(response.body, status=response.status, content_type=response.content_type)
    for name, value in response.headers:
        if name == "Set-Cookie":
            sent.cookies.load(value)
        else:
            sent[name] = value
    return sent
