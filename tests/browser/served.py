"""The dashboard of the filled application for servers in processes of their own: `tests.browser.served:board`."""

from __future__ import annotations

from penstock.dashboard import Request, Viewer
from tests.browser.shop import app


def guard(_request: Request) -> Viewer:
    return Viewer("ann", "all")


board = app.dashboard(guard=guard)
wsgi = board.wsgi
