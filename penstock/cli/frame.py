"""What every command shares: how it ends. Errors are one line that says what to do; exit codes mean something.

0   done
1   the answer is bad: doctor or check found something, a run did not succeed, nothing could be changed
    because of where it stands
2   wrong usage: arguments, settings, an id that is not there, the app, a schema that does not fit this version
3   the database cannot be used: unreachable, read-only, full
70  an error in Penstock itself
128 + n  ended at once by signal n (a worker's second SIGINT or SIGTERM)
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import typer
from rich.console import Console
from sqlalchemy.exc import SQLAlchemyError
from typer.core import TyperGroup

from penstock.errors import ActionRefused, DatabaseUnavailable, PenstockError

DONE, BAD, WRONG, UNAVAILABLE, BROKEN = 0, 1, 2, 3, 70

# Into a file or a pipe, lines are as long as they must be.
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 500)
err = Console(stderr=True, highlight=False, soft_wrap=True)
_wishes = {"debug": False}


class Refusal(PenstockError):
    """A command cannot go on, and what to do about it."""

    def __init__(self, message: str, code: int = WRONG) -> None:
        super().__init__(message)
        self.code = code


class Frame(TyperGroup):
    """Runs a command and turns what goes wrong into one line and a code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            fail(error, exit_code(error))
        except SQLAlchemyError as error:
            fail(error, UNAVAILABLE)
        except BrokenPipeError:
            os._exit(DONE)  # whoever read our output has seen enough
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def exit_code(error: PenstockError) -> int:
    match error:
        case Refusal(code=code):
            return code
        case DatabaseUnavailable():
            return UNAVAILABLE
        case ActionRefused():
            return BAD
        case _:
            return WRONG


def fail(error: Exception, code: int) -> None:
    """Say what is wrong, in one line (with --debug: all of it), and end."""
    if debugging():
        err.print(traceback.format_exc(), markup=False)
    err.print(f"penstock: {one_line(error)}", markup=False, style="red")
    raise typer.Exit(code)


def one_line(error: BaseException) -> str:
    """The message without the background links and statements that drivers append."""
    cause = getattr(error, "orig", None) or error
    return " ".join(line.strip() for line in str(cause).splitlines() if line.strip()) or type(cause).__name__


def debugging() -> bool:
    """Whether tracebacks are wanted; the root command's --debug says so."""
    return _wishes["debug"]


def wish_debugging(on: bool) -> None:
    _wishes["debug"] = on
