"""Checks an app without running it. Each check is a function that names what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from penstock.errors import PenstockError
from penstock.operate.diagnosis import step_types
from penstock.operate.reconcilers import lacks


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that would fail later: what it is about, and what is wrong with it."""

    subject: str
    message: str


Check = Callable[[Any], Iterable[Problem]]


def check_app(app: Any) -> list[Problem]:
    """All problems of an app."""
    return [problem for check in CHECKS for problem in check(app)]


def check_definitions(app: Any) -> list[Problem]:
    """The problems that can be found without a database."""
    return [*check_tasks(app), *check_pipelines(app)]


def check_tasks(app: Any) -> Iterable[Problem]:
    """Check that every annotation can be resolved, every default written as JSON, and every task found by a new
    process."""
    for name, task in sorted(app.tasks.items()):
        try:
            task.codec.build()
        except PenstockError as error:
            yield Problem(name, str(error))
        except Exception as error:
            yield Problem(name, f"{type(error).__name__}: {error}")
        if task.executor == "process" and "<" in getattr(task.function, "__qualname__", "<"):
            yield Problem(
                name, 'executor="process" imports the task by name: declare it at the top of a module'
            )


def check_reconcilers(app: Any) -> Iterable[Problem]:
    """Check that every table has the columns and the index it needs. Without a database nothing is checked."""
    if not app.reconcilers:
        return
    try:
        missing = lacks(app.database.engine, app.reconcilers.values())
    except SQLAlchemyError:
        return
    for lack in missing:
        yield Problem(lack.table, f"lacks {lack.what}. Add it: {lack.sql}")


def check_pipelines(app: Any) -> Iterable[Problem]:
    """Check that every definition can be built with the current settings, and that its steps take what other steps
    return."""
    for name, pipeline in sorted(app.pipelines.items()):
        try:
            _ = pipeline.runnable
            pipeline.codec.build()
            pipeline.defaults()
            yield from [Problem(name, mismatch) for mismatch in step_types.mismatches(app, pipeline)]
        except PenstockError as error:
            yield Problem(name, str(error))
        except Exception as error:
            yield Problem(name, f"{type(error).__name__}: {error}")


CHECKS: list[Check] = [check_tasks, check_pipelines, check_reconcilers]
