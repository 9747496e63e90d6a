"""`manage.py penstock …`: the whole command line, with the project's app."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connections

from penstock.cli.exit_codes import called_as
from penstock.cli.load_app import VARIABLE
from penstock.cli.main import main

OF_MANAGE = ("--settings", "--pythonpath")
"""Options of manage.py itself, which it has read already."""


class Command(BaseCommand):
    """Passes its arguments on to the command line."""

    help = "Penstock's command line, with the app of this project: worker, status, runs, show, doctor, ..."
    requires_system_checks: Sequence[str] = ()

    def run_from_argv(self, argv: list[str]) -> None:
        self._run(_without_options_of_manage(argv[2:]))

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("arguments", nargs="*")

    def handle(self, *_: Any, **options: Any) -> None:
        """`call_command("penstock", "migrate")`."""
        self._run(list(options["arguments"]))

    def _run(self, arguments: list[str]) -> None:
        os.environ.setdefault(VARIABLE, "penstock.django:app")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        called_as("manage.py penstock")
        connections.close_all()  # a worker forks, and its children have connections of their own
        main(arguments)


def _without_options_of_manage(arguments: Sequence[str]) -> list[str]:
    left: list[str] = []
    following = iter(arguments)
    for argument in following:
        if argument in OF_MANAGE:
            next(following, None)
        elif not argument.startswith(tuple(f"{name}=" for name in OF_MANAGE)):
            left.append(argument)
    return left
