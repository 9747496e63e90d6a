"""Draws command lines from the tree of commands itself: a new command or option is drawn as soon as it is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

import typer
from hypothesis import strategies as st

from penstock.cli.main import build
from penstock.settings import Settings

ENDLESS: dict[tuple[str, ...], str] = {
    ("demo",): "",
    ("run",): "hostile_app:pipe",
    ("worker",): "hostile_app:app",
    ("dashboard",): "hostile_app:app",
    ("mcp",): "hostile_app:app",
}
"""They go on until they are told to stop, `run` with --wait: what they are about, if that is there."""
FEW = ["-1", "0", "1", "2", "x", ""]
"""Numbers of processes that a machine can start."""
LEFT_OUT = {("demo",): "it works through its orders for half a minute: see `endless_lines`"}
SERVING = {"worker", "dashboard", "mcp"}
"""They serve until they are told to stop: here only with an app that cannot be had."""
UNUSED_FLAGS = {"--wait", "--autoreload", "--help", "--version"}
"""They wait for a worker, start processes, or do nothing: see `endless_lines`."""
UNUSED_SETTINGS = {"database_url", "crash_at"}
MODULES = [
    "nope",
    "nope:app",
    "hostile_app",
    "hostile_app:",
    ":app",
    "hostile_app:plain",
    "hostile_app:app",
    "hostile_app:app.tasks",
    "hostile_app:nothing",
    "os:path",
    "a..b:c",
    "a b:c",
    "hostile_app.py:app",
    "/etc/passwd:app",
]
ABSENT = [name for name in MODULES if not name.startswith("hostile_app")]
IDS = [
    "",
    " ",
    "%",
    "_",
    "'",
    "' or 1=1 --",
    "../../etc/passwd",
    "0",
    "a\nb",
    "é",
    "-",
    "--",
    "-1",
    "a" * 5000,
]
VALUES = [
    "[1",
    "{",
    "NaN",
    "1e999",
    '"\\ud800"',
    "[" * 5000,
    "[" * 5000 + "]" * 5000,
    "9" * 5000,
    "x=",
    "=x",
    "null",
    "a:b",
    "1,2",
    "-0",
]
NUMBERS = [
    "-1",
    "0",
    "1",
    "x",
    "99999999999999999999",
    "1e308",
    "nan",
    "inf",
    "",
    "5m",
    "-5m",
    "2020-01-01",
    "now",
]


class Command(NamedTuple):
    """A command: its words, and its parameters as typer knows them."""

    words: tuple[str, ...]
    parameters: list[Any]


class Line(NamedTuple):
    """A command line, and a setting in its environment."""

    arguments: list[str]
    environment: dict[str, str]


def commands() -> list[Command]:
    """Every command of the tree, but for those that are left out."""
    root = typer.main.get_command(build())
    return [Command(words, command.params) for words, command in _walk(root) if words not in LEFT_OUT]


def _walk(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if children is None or (words and command.invoke_without_command):
        yield words, command
    for name, child in (children or {}).items():
        yield from _walk(child, (*words, name))


def lines(known: list[str], database_url: str) -> st.SearchStrategy[Line]:
    """Command lines with odd values, or with names and ids of what there is."""
    odd = st.text(max_size=8).filter(lambda text: "\x00" not in text)
    value = st.one_of(st.sampled_from(known + MODULES), st.sampled_from(IDS + VALUES + NUMBERS), odd)
    return st.sampled_from(commands()).flatmap(
        lambda command: st.builds(
            Line, st.composite(_arguments)(command, value, database_url), _environments(value)
        )
    )


def endless_lines(known: list[str]) -> st.SearchStrategy[list[str]]:
    """Command lines of commands that do not end by themselves; most of them about an app that is there."""
    parameters = {words: command.params for words, command in _walk(typer.main.get_command(build()))}
    value = st.sampled_from(known + MODULES + IDS + VALUES + NUMBERS)

    def line(draw: Any, words: tuple[str, ...]) -> list[str]:
        options, positional = [*words], []
        for parameter in parameters[words]:
            name = parameter.opts[0]
            often = 1 if name in ("--wait", "--autoreload") else 3
            if name == "target":
                positional.append(draw(st.sampled_from([ENDLESS[words]] * 3 + MODULES[:1])))
            elif not name.startswith("-"):
                positional += draw(st.lists(value, max_size=2))
            elif name not in ("--help", "--database") and draw(st.integers(0, often)) == 0:
                given = draw(st.sampled_from(FEW) if name == "--processes" else value)
                options.append(name if parameter.is_flag else f"{name}={given}")
        return [*options, "--", *positional] if positional else options

    return st.sampled_from(sorted(ENDLESS)).flatmap(st.composite(line))


def _arguments(draw: Any, command: Command, value: st.SearchStrategy[str], database_url: str) -> list[str]:
    options, positional = [*command.words], []
    for parameter in command.parameters:
        name = parameter.opts[0]
        if name in UNUSED_FLAGS or (name == "--database" and command.words[0] in SERVING):
            continue
        if name == "--database":
            options.append(f"--database={database_url}")
        elif not name.startswith("-"):
            absent = command.words[0] in SERVING and name == "target"
            if absent or parameter.required or draw(st.booleans()):
                positional.append(draw(st.sampled_from(ABSENT) if absent else value))
        elif draw(st.integers(0, 3)) == 0:
            options.append(name if parameter.is_flag else f"{name}={draw(value)}")
    if command.words == ("watch",):
        options.append("--timeout=0.1")
    return [*options, "--", *positional] if positional else options


def _environments(value: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    names = sorted(field.name for field in fields(Settings) if field.name not in UNUSED_SETTINGS)
    one = st.tuples(st.sampled_from(names).map(lambda name: f"PENSTOCK_{name.upper()}"), value)
    return st.one_of(st.just({}), st.just({}), one.map(lambda pair: dict([pair])))
