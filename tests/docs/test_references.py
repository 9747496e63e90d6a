"""The reference pages name everything there is: settings with their defaults, commands, reasons, errors."""

from dataclasses import fields
from pathlib import Path

import pytest
import typer

from penstock import errors
from penstock.cli.main import build
from penstock.settings import Settings
from penstock.values import readers
from penstock.values.status import Reason
from penstock.values.units import parse_bytes, parse_seconds

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str) -> dict[str, list[str]]:
    """The table rows of a page, by the code in their first cell."""
    lines = (DOCS / page).read_text().splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")
    ]
    return {row[0].strip("`"): row[1:] for row in cells}


@pytest.mark.parametrize("name", Settings.meanings())
def test_settings_are_documented(name: str) -> None:
    default, meaning = rows("operations/settings.md")[name]
    assert meaning == Settings.meanings()[name]
    assert _value(name, default) == next(field.default for field in fields(Settings) if field.name == name)


def test_no_setting_is_documented_that_is_not_there() -> None:
    assert rows("operations/settings.md").keys() == Settings.meanings().keys()


def test_commands_are_documented() -> None:
    text = (DOCS / "operations/cli.md").read_text()
    root = typer.main.get_command(build())
    missing = [name for name in getattr(root, "commands", {}) if f"penstock {name}" not in text]
    assert missing == []


def test_reasons_are_documented() -> None:
    pages = [DOCS / "guides" / name for name in ("retries-and-crashes.md", "failing-steps.md")]
    text = "".join(page.read_text() for page in pages)
    assert [reason.value for reason in Reason if f"`{reason.value}`" not in text] == []


def test_errors_are_documented() -> None:
    text = (DOCS / "operations/errors.md").read_text()
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert [
        kind.__name__
        for kind in kinds
        if f"`{kind.__name__}`" not in text and kind is not errors.PenstockError
    ] == []


def _value(name: str, written: str) -> object:
    """A default as it is written on the page, as the setting would read it."""
    if written == "none":
        return None
    text = written.strip("`")
    if name in ("payload_limit", "expand_limit"):
        return parse_bytes(text)
    kind = next(field for field in fields(Settings) if field.name == name).type
    if "float" in str(kind):
        return parse_seconds(text)
    if str(kind) == "bool":
        return readers.flag(text)
    return int(text) if "int" in str(kind) else text
