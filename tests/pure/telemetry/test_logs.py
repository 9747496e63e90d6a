"""telemetry/logs, telemetry/messages: Logs: every event has words, in text and JSON, and costs nothing below the
level.
"""

import io
import json
import logging
import os
from dataclasses import MISSING, fields

import pytest

from penstock.telemetry import events, logs
from penstock.telemetry.events import (
    AttemptSettled,
    ChildEnded,
    Event,
    JobsClaimed,
    JobsEnqueued,
    Stream,
    TroubleBegan,
)
from penstock.telemetry.messages import WORDING

KINDS = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind != Event
]
SAMPLES = {"str": "x", "int": 3, "float": 1.5, "bool": True, "str | None": "x"}


def sample(kind: type[Event]) -> Event:
    return kind(**{f.name: SAMPLES.get(str(f.type), "x") for f in fields(kind) if f.default is MISSING})


@pytest.fixture
def logger() -> logging.Logger:
    made = logging.Logger("penstock.test", logging.INFO)
    made.propagate = False
    return made


def written(logger: logging.Logger, formatter: logging.Formatter) -> io.StringIO:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_can_be_put_into_words(kind: type[Event]) -> None:
    level, words = WORDING[kind]
    event = sample(kind)
    assert words(event)
    assert (level(event) if callable(level) else level) in (
        logging.DEBUG,
        logging.INFO,
        logging.WARNING,
        logging.ERROR,
    )


def test_text_lines_carry_time_level_pid_words_and_the_running_job(logger: logging.Logger) -> None:
    stream = Stream()
    out = written(logger, logs.TextFormatter(lambda: {"job": "j1"}))
    logs.attach(stream, logger)
    stream.emit(ChildEnded(17, 0, -9, False, 2.0))
    line = out.getvalue()
    assert " error   [" in line
    assert "child 17 was ended by signal 9 after 2.0 s" in line
    assert line.endswith("(job=j1)\n")
    assert line[:4].isdigit()


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (JobsClaimed("p", 1, 0.0), "claimed 1 job in"),
        (events.WorkReclaimed(1, 0), "took back 1 job of dead processes"),
        (events.WorkReclaimed(2, 0), "took back 2 jobs of dead processes"),
        (events.ClaimsReleased("p", 1), "gave back 1 job\n"),
        (events.WorkReleased(1), "gave back 1 job of a stopped process"),
        (events.JobsCancelled(("j",)), "cancelled 1 waiting job"),
    ],
)
def test_one_is_not_written_as_many(logger: logging.Logger, event: Event, words: str) -> None:
    stream = Stream()
    logger.setLevel(logging.DEBUG)
    out = written(logger, logs.TextFormatter(dict))
    logs.attach(stream, logger)
    stream.emit(event)
    assert words in out.getvalue()


def test_what_an_error_says_begins_no_line_and_steers_no_terminal(logger: logging.Logger) -> None:
    stream = Stream()
    out = written(logger, logs.TextFormatter(dict))
    logs.attach(stream, logger)
    stream.emit(TroubleBegan("pump", "no\r\n2026-11-17 info\tforged \x1b[2J\x9b2J\u2028"))
    assert out.getvalue().endswith("no\\r\\n2026-11-17 info\tforged \\x1b[2J\\x9b2J\\u2028\n")


def test_json_lines_carry_every_field_of_the_event(logger: logging.Logger) -> None:
    stream = Stream()
    out = written(logger, logs.JsonFormatter(lambda: {"job": "j1"}))
    logs.attach(stream, logger)
    stream.emit(TroubleBegan("pump", "no\nanswer"))
    line = json.loads(out.getvalue())
    assert out.getvalue().count("\n") == 1
    assert line["event"] == "trouble_began"
    assert (line["loop"], line["error"], line["level"], line["job"]) == ("pump", "no\nanswer", "error", "j1")


def test_a_json_line_about_a_child_says_who_writes_it(logger: logging.Logger) -> None:
    stream = Stream()
    out = written(logger, logs.JsonFormatter(dict))
    logs.attach(stream, logger)
    stream.emit(ChildEnded(17, 0, -9, False, 2.0))
    line = json.loads(out.getvalue())
    assert (line["pid"], line["child_pid"]) == (os.getpid(), 17)


def test_lines_of_the_application_have_its_logger_and_traceback(logger: logging.Logger) -> None:
    out = written(logger, logs.JsonFormatter(dict))
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("could not")
    line = json.loads(out.getvalue())
    assert (line["logger"], line["message"]) == ("penstock.test", "could not")
    assert "ValueError: broken" in line["traceback"]


def test_what_is_below_the_level_is_not_even_asked_for(logger: logging.Logger) -> None:
    stream = Stream()
    stop = logs.attach(stream, logger)
    assert not stream.wants(JobsClaimed)
    assert not stream.wants(JobsEnqueued)
    assert stream.wants(TroubleBegan)
    stop()
    assert not stream.wants(TroubleBegan)


FAILED = AttemptSettled(
    "j1",
    "pay",
    "q",
    1,
    "errored",
    "failed",
    None,
    0.1,
    "E: no",
    "E",
    "Traceback …\nE: no\n2026 forged\x1b[2J\n",
)


@pytest.mark.parametrize(
    ("least", "shown"), [("warning", True), ("error", True), ("critical", False), ("never", False)]
)
def test_a_failure_has_its_traceback_from_the_wanted_level_on(
    logger: logging.Logger, least: str, shown: bool
) -> None:
    text, lines = Stream(), Stream()
    out = written(logger, logs.TextFormatter(dict))
    logs.attach(text, logger, least)
    text.emit(FAILED)
    indented = "\n  Traceback …\n  E: no\n  2026 forged\\x1b[2J\n"
    assert out.getvalue().endswith(indented) is shown
    assert out.getvalue().count("\n") == (4 if shown else 1)
    out = written(logger, logs.JsonFormatter(dict))
    logs.attach(lines, logger, least)
    lines.emit(FAILED)
    line = json.loads(out.getvalue())
    assert (line.get("traceback") == FAILED.traceback) is shown
    assert line["error_type"] == "E"


@pytest.mark.parametrize(
    ("outcome", "status", "level"),
    [
        ("succeeded", "succeeded", None),
        ("errored", "scheduled", "WARNING"),
        ("errored", "failed", "ERROR"),
        ("timed_out", "scheduled", "WARNING"),
        ("snoozed", "scheduled", None),
        ("released", "available", None),
    ],
)
def test_success_is_quiet_and_failure_is_loud(
    logger: logging.Logger, outcome: str, status: str, level: str | None
) -> None:
    stream = Stream()
    out = written(logger, logging.Formatter("%(levelname)s %(message)s"))
    logs.attach(stream, logger)
    stream.emit(AttemptSettled("j1", "shop.pay", "default", 1, outcome, status, None, 0.1, "ValueError: no"))
    assert out.getvalue().startswith(level) if level else out.getvalue() == ""


def test_a_listener_that_raises_disturbs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream()
    seen: list[Event] = []
    stream.on(TroubleBegan, lambda _: 1 / 0)  # type: ignore[arg-type]
    stream.on(Event, seen.append)
    stream.emit(TroubleBegan("pump", "x"))
    assert len(seen) == 1
    assert "listener" in caplog.text
