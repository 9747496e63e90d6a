"""Ends commands: an error is one line that says what to do, and exit codes have a meaning.

0   done
1   the answer is bad: doctor or check found something, a run did not succeed, nothing could be changed
    because of where it stands
2   wrong usage: arguments, settings, an id that is not there, the app, a schema that does not fit this version
3   the database cannot be used: unreachable, read-only, full
70  an error in Penstock itself
128 + n  ended at once by signal n (Ctrl-C: 130; a worker's second SIGINT or SIGTERM)
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import traceback
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console
from rich.segment import Segment
from typer.core import TyperGroup

from penstock.errors import ActionRefused, DatabaseUnavailable, PenstockError
from penstock.values.escape import in_one_line, in_text

DONE, BAD, WRONG, UNAVAILABLE, BROKEN = 0, 1, 2, 3, 70
NOWHERE_TO_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EFBIG)


class PipeSafeConsole(Console):
    """A console that escapes what it prints. A reader that closes the pipe early, such as `head`, is no failure."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*[in_text(each) if isinstance(each, str) else each for each in objects], **how)

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """Write to the terminal, with control characters escaped."""
        return super()._render_buffer(
            [seen if seen.control else Segment(in_text(seen.text), seen.style) for seen in buffer]
        )

    def on_broken_pipe(self) -> None:
        os._exit(DONE)


def _open_missing_streams() -> None:
    """Open streams that were closed at the start (`2>&-`, some daemons): the database file would else get their file
    numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as we live


def _escape_what_the_encoding_lacks() -> None:
    """A terminal of another encoding shows such characters escaped, as stderr does anyway."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


_open_missing_streams()
_escape_what_the_encoding_lacks()
UNBOUNDED = 10_000
"""The width of lines in a file or a pipe: unlimited, unless COLUMNS sets one."""


def _width() -> int | None:
    """The width of lines; None: that of the terminal."""
    if sys.stdout.isatty():
        return None
    wanted = os.environ.get("COLUMNS", "")
    return int(wanted) if wanted.isdecimal() and 0 < int(wanted) < UNBOUNDED else UNBOUNDED


out = PipeSafeConsole(highlight=False, soft_wrap=True, width=_width())
err = PipeSafeConsole(stderr=True, highlight=False, soft_wrap=True)
_modes = {"debug": False}
_names = {"program": "penstock"}
COMMAND = re.compile(
    r"(?<![\w./-])penstock (?=(worker|run|runs|enqueue|status|jobs|show|watch|explain|processes|reconcilers|audit"
    r"|cancel|pause|resume|revive|rerun|retry|signal|token|then|diff|migrate|migrate-run|check|doctor|health|prune|dashboard"
    r"|dead-letters|queues|schedules)\b)"
)
"""The name of the program before one of its commands, in a sentence."""


def called_as(program: str) -> None:
    """Set the name of the program, for commands in messages: `manage.py penstock`."""
    _names["program"] = program


def as_typed(words: str) -> str:
    """The sentence with commands as the user types them: a project's own program needs no app argument."""
    program = _names["program"]
    return words if program == "penstock" else COMMAND.sub(f"{program} ", words).replace(" MODULE:APP", "")


class UsageError(PenstockError):
    """An error of usage; the message says what to do."""

    def __init__(self, message: str, code: int = WRONG) -> None:
        super().__init__(message)
        self.code = code


class CommandGroup(TyperGroup):
    """Runs a command and turns what goes wrong into one line and a code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            fail(error, exit_code(error))
        except BrokenPipeError:
            out.on_broken_pipe()
        except OSError as error:
            _fail_to_write(error)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except Exception as error:
            if not _is_sqlalchemys(error):
                raise
            fail(error, UNAVAILABLE)


def _is_sqlalchemys(error: Exception) -> bool:
    """True for an error of SQLAlchemy, which need not be installed."""
    return any(kind.__module__ == "sqlalchemy.exc" for kind in type(error).__mro__)


def exit_code(error: PenstockError) -> int:
    match error:
        case UsageError(code=code):
            return code
        case DatabaseUnavailable():
            return UNAVAILABLE
        case ActionRefused():
            return BAD
        case _:
            return WRONG


def fail(error: Exception, code: int) -> None:
    """Print the error in one line (with --debug: the traceback), and exit."""
    if debugging():
        err.print(traceback.format_exc(), markup=False)
    err.print(f"penstock: {as_typed(one_line(error))}", markup=False, style="red")
    raise typer.Exit(code)


def _fail_to_write(error: OSError) -> None:
    """The output cannot be written: exit without flushing, which would fail as well."""
    if error.errno not in NOWHERE_TO_WRITE:
        raise error
    err.print(f"penstock: the output cannot be written: {one_line(error)}", markup=False, style="red")
    os._exit(BAD)


def one_line(error: BaseException) -> str:
    """The message without the background links and statements that drivers append."""
    cause = getattr(error, "orig", None) or error
    return in_one_line(str(cause)) or type(cause).__name__


def debugging() -> bool:
    """True if tracebacks are wanted: the root command has the option --debug."""
    return _modes["debug"]


def set_debugging(on: bool) -> None:
    _modes["debug"] = on
