"""Serves the dashboard on the user's own machine: on the loopback address, for the holder of a link that works once.

The link's key opens a session (`logins.py`). A request for another host name is refused, so that a page elsewhere
cannot reach the server under a name of its own.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from penstock.app import Penstock
from penstock.dashboard.dashboard import Dashboard
from penstock.dashboard.logins import LinkLogin
from penstock.errors import ConfigurationError
from penstock.values.actor import this_process

ADDRESS = "127.0.0.1"
PORT = 8321
OWN_NAMES = frozenset({ADDRESS, "localhost", "[::1]"})
REFUSED = b"this server answers on 127.0.0.1 only"


class _Server(ThreadingMixIn, WSGIServer):
    """Serves each request in a thread of its own; no thread delays the end of the process."""

    daemon_threads = True
    block_on_close = False

    def server_bind(self) -> None:
        """Bind without a look-up of the host's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that leaves in the middle of an answer."""


class _Handler(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Do not log requests."""


class LocalServer:
    """The dashboard of an app at a port of this machine."""

    def __init__(self, app: Penstock, port: int = PORT, *, read_only: bool = False) -> None:
        self._login = LinkLogin(this_process())
        dashboard = Dashboard(app, read_only=read_only, link=self._login)
        try:
            self._server = _Server((ADDRESS, port), _Handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            why = "is in use" if error.errno == errno.EADDRINUSE else "may not be used by this user"
            raise ConfigurationError(f"port {port} {why}: choose another with --port") from error
        self._server.set_app(_for_this_host(dashboard.wsgi))

    def link(self) -> str:
        """A link that opens the dashboard once."""
        return f"http://{ADDRESS}:{self._server.server_port}/login?key={self._login.new_key()}"

    @property
    def was_opened(self) -> bool:
        """True if the link was followed."""
        return self._login.was_used

    def serve(self) -> None:
        """Answer requests until Ctrl-C."""
        try:
            self._server.serve_forever(poll_interval=0.2)
        finally:
            self._server.server_close()

    def start(self) -> None:
        """Answer requests in a thread, until the process ends."""
        threading.Thread(target=self.serve, name="penstock-dashboard", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()


WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def _for_this_host(app: WsgiApp) -> WsgiApp:
    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        name = str(environ.get("HTTP_HOST", "")).lower()
        if (name.rpartition(":")[0] or name) in OWN_NAMES:
            return app(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
        return [REFUSED]

    return guarded
