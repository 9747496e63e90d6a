"""An extension for Flask: `flask penstock …`, handlers inside the application context, and the dashboard.

jobs = FlaskPenstock(app, dashboard="/jobs", guard=who)
jobs.init_app(flask_app)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.cli.load_app import use_by_default
from penstock.cli.main import main
from penstock.errors import ConfigurationError

try:
    import click
    from flask import Flask
    from werkzeug.middleware.dispatcher import DispatcherMiddleware
except ImportError as error:
    raise ConfigurationError("the extension for Flask needs it: pip install 'penstock[flask]'") from error

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.middleware import HandlerCall


class FlaskPenstock:
    """Connects an app of Penstock's to a Flask application.

    `dashboard` is the path to mount the dashboard at, with the `guard` of `app.dashboard(guard=...)`.
    """

    def __init__(
        self,
        app: Penstock,
        flask_app: Flask | None = None,
        *,
        dashboard: str | None = None,
        guard: Callable[[Any], Any] | None = None,
    ) -> None:
        self.app = app
        self.dashboard = dashboard
        self.guard = guard
        if flask_app is not None:
            self.init_app(flask_app)

    def init_app(self, flask_app: Flask) -> None:
        """Add the command, the context around handlers, and the dashboard."""
        flask_app.extensions["penstock"] = self
        flask_app.cli.add_command(self._command())
        self.app.middleware(_in_context_of(flask_app))
        if self.dashboard is not None:
            pages: dict[str, Any] = {self.dashboard.rstrip("/"): self.app.dashboard(guard=self.guard).wsgi}
            flask_app.wsgi_app = DispatcherMiddleware(flask_app.wsgi_app, pages)  # type: ignore[method-assign]

    def _command(self) -> click.Command:
        @click.command(
            "penstock",
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
            help="Penstock's command line, with the app of this application: worker, status, runs, ...",
        )
        @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
        def penstock(arguments: Iterable[str]) -> None:
            use_by_default(self.app)
            main(list(arguments))

        return penstock


def _in_context_of(flask_app: Flask) -> Callable[[HandlerCall], Iterator[None]]:
    def in_app_context(_call: HandlerCall) -> Iterator[None]:
        with flask_app.app_context():
            yield

    return in_app_context
