"""The reference pages name everything there is: settings with their defaults, commands and their options, reasons,
errors, events, metrics, and the names of the Python API.
"""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

import penstock
from penstock import errors
from penstock.cli.main import build
from penstock.context import CurrentJob
from penstock.job import Job
from penstock.operate.overview import Overview, gauges
from penstock.pipelines.run import Run
from penstock.reconcile import events as row_events
from penstock.run_context import RunContext
from penstock.settings import Settings
from penstock.telemetry import events, metrics
from penstock.values import parse
from penstock.values.parse import parse_bytes, parse_seconds
from penstock.values.status import Reason

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


def test_options_of_commands_are_documented() -> None:
    text = (DOCS / "operations/cli.md").read_text()
    root = typer.main.get_command(build())
    missing = {name for name in options_of(root) if name not in text} - {"--help"}
    assert missing == set()


def options_of(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from [name for name in parameter.opts if name.startswith("--")]
    for below in getattr(command, "commands", {}).values():
        yield from options_of(below)


def test_events_are_documented() -> None:
    text = (DOCS / "operations/monitoring.md").read_text()
    kinds = [kind for module in (events, row_events) for kind in vars(module).values()]
    emitted = {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, events.Event)}
    assert (
        sorted(kind.__name__ for kind in emitted - {events.Event} if f"`{kind.__name__}`" not in text) == []
    )


def test_metrics_are_documented() -> None:
    text = (DOCS / "operations/monitoring.md").read_text()
    counted = [metrics.PREFIX + name for name in (*metrics.COUNTERS, *metrics.HISTOGRAMS)]
    told = gauges(Overview([], {}, {}, 1)).splitlines()
    read = [line.split()[2] for line in told if line.startswith("# TYPE")]
    assert len(read) == 4
    assert [name for name in [*counted, *read] if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("word", "kind"), [("job", Job), ("job", CurrentJob), ("run", Run), ("run.context", RunContext)]
)
def test_what_handles_can_do_is_documented(word: str, kind: type) -> None:
    text = (DOCS / "reference.md").read_text()
    internal = {"completed", "payload_limit", "result_limit", "delivered", "result"}
    names = [name for name in dir(kind) if not name.startswith("_") and not name.endswith("_async")]
    said = f"`{word}" if word == "run.context" else f"`{word}."
    missing = [name for name in names if f"{said}{name}" not in text and f"`{name}`" not in text]
    assert set(missing) - internal == set()


def test_public_names_are_documented() -> None:
    text = (DOCS / "reference.md").read_text()
    assert [name for name in penstock.__all__ if f"`{name}" not in text] == []


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
        return parse.flag(text)
    return int(text) if "int" in str(kind) else text
