"""Finds the interface of `django.tasks`: in Django since 6.0, and for 5.2 in the package `django-tasks`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

NAMES = ("django.tasks", "django_tasks")


def _found() -> str:
    for name in NAMES:
        if find_spec(name) is not None:
            return name
    raise ImportError(
        "TaskBackend needs django.tasks, which is in Django 6.0 and newer. For Django 5.2: pip install django-tasks"
    )


PACKAGE = _found()
base: Any = import_module(f"{PACKAGE}.base")
backends: Any = import_module(f"{PACKAGE}.backends.base")
exceptions: Any = import_module(f"{PACKAGE}.exceptions")
signals: Any = import_module(f"{PACKAGE}.signals")

BaseTaskBackend: Any = backends.BaseTaskBackend
Task: Any = base.Task
TaskContext: Any = base.TaskContext
TaskError: Any = base.TaskError
TaskResult: Any = base.TaskResult
TaskResultStatus: Any = base.TaskResultStatus
InvalidTask: Any = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
TaskResultDoesNotExist: Any = exceptions.TaskResultDoesNotExist
task_enqueued, task_started, task_finished = (
    signals.task_enqueued,
    signals.task_started,
    signals.task_finished,
)
normalize_json: Any = import_module(
    "django.utils.json" if PACKAGE == "django.tasks" else "django_tasks.utils"
).normalize_json
