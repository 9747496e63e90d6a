"""Penstock in Django's system checks: `manage.py check`, and `manage.py check --database default`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as Caution

from penstock.django.application import the_app
from penstock.errors import PenstockError, SchemaOutdated
from penstock.operate.check import check_definitions, check_reconcilers


def check_project(**_: Any) -> list[CheckMessage]:
    """The settings can be read, and each task and pipeline can be run."""
    try:
        app = the_app()
    except PenstockError as error:
        return [Error(str(error), id="penstock.E001")]
    return [
        Error(f"{problem.subject}: {problem.message}", id="penstock.E002")
        for problem in check_definitions(app)
    ]


def check_database(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """The tables are those of this version, and the tables of reconcilers have their columns."""
    app = the_app()
    if not databases or app.alias not in databases:
        return []
    try:
        app.verify_schema()
    except SchemaOutdated as error:
        if app.settings.auto_migrate:
            return []  # they are upgraded on first use, if `migrate` does not come first
        return [Caution(str(error), hint="Run: manage.py migrate", id="penstock.W001")]
    except PenstockError as error:
        return [Error(str(error), id="penstock.E006")]
    return [
        Error(f"{problem.subject}: {problem.message}", id="penstock.E003")
        for problem in check_reconcilers(app)
    ]
