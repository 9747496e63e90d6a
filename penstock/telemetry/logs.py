"""Logs: the event stream as lines of text or JSON, on stderr or wherever the application sends its logs."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TextIO

from penstock.telemetry.events import Event, Stream
from penstock.telemetry.messages import WORDING, added
from penstock.values.escape import in_line

log = logging.getLogger("penstock")

Context = Callable[[], Mapping[str, object]]
"""Returns fields that are added to a line: the job that is running, for instance."""


NEVER = "never"


def attach(stream: Stream, logger: logging.Logger = log, tracebacks: str = "warning") -> Callable[[], None]:
    """Log the events of a stream; call what is returned to stop. Events below the level cost nothing.

    `tracebacks`: the least severe level whose lines have the traceback of the error with them, or "never".
    """
    least = (
        logging.CRITICAL + 1 if tracebacks == NEVER else logging.getLevelNamesMapping()[tracebacks.upper()]
    )

    def write(event: Event) -> None:
        level, words = WORDING[type(event)]
        severity = level(event) if callable(level) else level
        if not logger.isEnabledFor(severity):
            return
        fields = {"event": event, "traceback_wanted": severity >= least}
        record = logger.makeRecord(
            logger.name, severity, __file__, 0, "%s", (in_line(words(event)),), None, "attach", fields
        )
        if severity >= least:
            # An exception of another process is there as text only: formatters write it where exc_info would be.
            record.exc_text = _indented(getattr(event, "traceback", None))
        logger.handle(record)

    stops: list[Callable[[], None]] = []

    def listen(kind: type[Event]) -> None:
        level, _ = WORDING[kind]
        if callable(level) or logger.isEnabledFor(level):
            stops.append(stream.on(kind, write))

    for kind in list(WORDING):
        listen(kind)
    added.append(listen)

    def stop_all() -> None:
        added.remove(listen)
        for stop in stops:
            stop()

    return stop_all


def configure(level: str, form: str, context: Context = dict, out: TextIO | None = None) -> None:
    """Send everything logged in this process to stderr, unless the application has set up logging itself."""
    log.setLevel(level.upper())
    # psycopg logs a warning for every lost connection; our loops report it once.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    root = logging.getLogger()
    if root.handlers:
        return
    logging.getLogger("alembic").setLevel(
        logging.WARNING
    )  # operators need no lines about how Alembic makes our tables
    handler = logging.StreamHandler(out or sys.stderr)
    handler.setFormatter(JsonFormatter(context) if form == "json" else TextFormatter(context))
    root.addHandler(handler)
    root.setLevel(level.upper())


class TextFormatter(logging.Formatter):
    """A line for people: time in UTC, level, pid, the job that was running, words."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    def format(self, record: logging.LogRecord) -> str:
        around = " ".join(f"{name}={value}" for name, value in self.context().items())
        name = "" if record.name == log.name else f" {record.name}:"
        line = f"{_time(record)} {record.levelname.lower():<7} [{os.getpid()}]{name} {record.getMessage()}"
        line += f"  ({around})" if around else ""
        traceback = self.formatException(record.exc_info) if record.exc_info else record.exc_text
        return f"{line}\n{traceback.rstrip()}" if traceback else line


class JsonFormatter(logging.Formatter):
    """A line for machines: one object, with every field of the event."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    def format(self, record: logging.LogRecord) -> str:
        event = getattr(record, "event", None)
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": os.getpid(),
            "message": record.getMessage(),
        }
        line |= self.context()
        if isinstance(event, Event):
            line |= {"event": name_of(type(event)), **_fields(event)}
            if not getattr(record, "traceback_wanted", True):
                line.pop("traceback", None)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def _indented(traceback: str | None) -> str | None:
    """Indent and escape a traceback, so that none of its lines looks like a log line or controls a terminal."""
    if not traceback:
        return None
    return "\n".join([f"  {in_line(line)}" for line in traceback.rstrip("\n").split("\n")])


def _fields(event: Event) -> dict[str, object]:
    """The fields of an event, without headers: those may have texts that are for no log.

    A child of this process has its pid beside that of the process whose line it is.
    """
    fields = asdict(event)
    fields.pop("headers", None)
    if fields.get("pid", os.getpid()) != os.getpid():
        fields["child_pid"] = fields.pop("pid")
    return fields


def name_of(kind: type[Event]) -> str:
    """`JobCrashed` as `job_crashed`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__)[1:]


def _time(record: logging.LogRecord) -> str:
    instant = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return instant.replace("+00:00", "Z")
