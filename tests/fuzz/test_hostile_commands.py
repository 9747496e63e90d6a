"""Whatever is given to a command, it ends with a code that means something, and never with an error of ours."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from typer.testing import Result

from penstock import Penstock
from penstock.cli import exit_codes
from penstock.testing import drain
from tests.commands import call
from tests.fuzz.command_tree import LEFT_OUT, VALUES, Line, commands, lines
from tests.pure.database.test_secrets import FORMS, SECRET

CASES = 40
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
ESCAPES = "\x1b]0;pwned\x07\x1b[2J\x1b[31m\r\nFAKE\x9b31m\x85\x08\x7f"
SHOWN = [FORMS[1], FORMS[3], FORMS[6], FORMS[12]]
MODULE = """
from penstock import Penstock
app = Penstock()
@app.task(name="plain", retries=0)
def plain(x: str) -> str: return x
"""


@pytest.fixture
def runs(app: Penstock) -> list[str]:
    """Things whose names, errors and words would steer a terminal; their ids."""

    @app.task(name=f"task{ESCAPES}", retries=0)
    def fails(text: str) -> str:
        raise ValueError(f"error{ESCAPES}")

    @app.pipeline(name=f"pipe{ESCAPES}")
    def pipe(text: str) -> object:
        return fails(text)

    with app.acting(by=f"eve{ESCAPES}", why=f"because{ESCAPES}"):
        job = fails.options(key=f"key{ESCAPES}").enqueue(f"argument{ESCAPES}")
        run = pipe.options(labels=[f"label{ESCAPES}"]).trigger(f"argument{ESCAPES}")
        drain(app)
    return [job.id, run.id]


def ended_well(result: Result, given: Sequence[str]) -> None:
    assert result.exception is None or isinstance(result.exception, SystemExit), (given, result.exception)
    assert result.exit_code in (0, 1, 2), (given, result.exit_code, result.output[-300:])
    if given[0] != "show":  # which shows those of the handlers
        assert "Traceback (most recent call last)" not in result.output, (given, result.output[-300:])


def test_whatever_is_written_is_answered(
    app: Penstock, database_url: str, runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any command of the tree, with any of its options, and a setting in its environment."""
    (tmp_path / "hostile_app.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", database_url)
    monkeypatch.delitem(sys.modules, "hostile_app", raising=False)
    known = [*runs, "default", "pipe", "nightly", *app.tasks]
    app.schedules.create(next(iter(app.tasks.values())), "@daily", name="nightly", args=("x",))

    @settings(
        max_examples=CASES,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(lines(known, database_url))
    def answered(line: Line) -> None:
        with pytest.MonkeyPatch.context() as patch, alarm(30, line):
            for name, value in line.environment.items():
                patch.setenv(name, value)
            ended_well(call(*line.arguments), [*line.arguments, str(line.environment)])

    answered()


@contextmanager
def alarm(seconds: int, line: Line) -> Iterator[None]:
    """A command that does not end is a failure, with its command line."""

    def ring(_: int, __: object) -> None:
        raise AssertionError(f"it does not end: {line}")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_every_command_is_drawn_or_left_out_for_a_reason() -> None:
    drawn = {" ".join(command.words) for command in commands()}
    assert {"rerun", "diff", "token", "then", "migrate-run", "schedules create", "worker"} <= drawn
    assert all(LEFT_OUT.values())


@pytest.mark.one_database
@pytest.mark.parametrize("command", ["jobs", "runs", "audit", "dead-letters", "reconcilers", "schedules"])
@pytest.mark.parametrize("limit", ["0", "99999999999999999999"])
def test_no_number_is_too_large_for_the_database_only(command: str, limit: str, sqlite_url: str) -> None:
    """Each database has its own largest number; the command says what it takes."""
    result = call(command, "--database", sqlite_url, "--limit", limit)
    assert result.exit_code == 2, result.output
    assert "--limit" in result.output


@pytest.mark.one_database
@pytest.mark.parametrize("value", VALUES)
def test_any_value_is_enqueued_or_refused(
    value: str, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostile_app.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", sqlite_url)
    monkeypatch.delitem(sys.modules, "hostile_app", raising=False)
    ended_well(call("enqueue", "hostile_app:plain", "--", value), [value])
    for text in (value.encode(), b"\xff\xfe", b'["a"]\n\xff\n', b"\xef\xbb\xbf[1]"):
        (tmp_path / "calls.jsonl").write_bytes(text)
        ended_well(
            call("enqueue", "hostile_app:plain", "--from", str(tmp_path / "calls.jsonl")), [repr(text)]
        )


@pytest.mark.one_database
@pytest.mark.parametrize("form", SHOWN)
@pytest.mark.parametrize("command", [["status"], ["--debug", "doctor"]])
def test_no_command_shows_a_secret(
    form: str, command: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", form.format(SECRET))
    monkeypatch.setenv("PENSTOCK_CONNECT_TIMEOUT", "1")
    result = call(*command)
    assert result.exit_code in (1, 2, 3), result.output
    assert SECRET not in result.output + caplog.text


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_that_was_stored_steers_a_terminal(
    database_url: str, runs: list[str], terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exit_codes.out, "_force_terminal", terminal)
    commands = [["show", id] for id in runs]
    commands += [["show", id, "--json"] for id in runs]
    commands += [
        ["diff", runs[1]],
        ["jobs"],
        ["runs"],
        ["audit"],
        ["dead-letters"],
        ["status"],
        ["doctor"],
        ["pipelines"],
    ]
    for command in commands:
        result = call(command[0], "--database", database_url, *command[1:])
        ended_well(result, command)
        text = COLOURS.sub("", result.output)
        raw = {char for char in text if (ord(char) < 32 and char not in "\n\t") or 0x7F <= ord(char) < 0xA0}
        assert not raw, (command, raw)
        told, _, _ = text.partition("Traceback (most recent call last)")
        assert not [line for line in told.splitlines() if line.startswith("FAKE")], (command, told)
