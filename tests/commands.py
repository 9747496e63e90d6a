"""`penstock ARGUMENTS`, called in this process.

The commands are made once: that takes typer a tenth of a second, and it would do so for every call.
"""

from functools import cache
from unittest.mock import patch

import typer
from typer.testing import CliRunner, Result

from penstock.cli.main import build

cli = cache(build)
_made = cache(typer.main.get_command)


def call(*arguments: str) -> Result:
    with patch("typer.testing._get_command", _made):
        return CliRunner().invoke(cli(), list(arguments))
