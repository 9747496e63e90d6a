"""The backend of `django.tasks`: each of Django's tasks is a task of Penstock's, and each result is a job.

`TASKS = {"default": {"BACKEND": "penstock.django.TaskBackend"}}`. A task that raises has FAILED, as with Django's own
backends, unless `retries` are given: for all tasks in OPTIONS, for one in its decorator. Another worker runs a task
again whose worker died. The worker sends `task_started` before the function; `task_signals` sends `task_finished`, once
the end is committed.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.utils import timezone

from penstock.context import current
from penstock.django.application import the_app
from penstock.django.task_results import read_history, result_of
from penstock.django.task_signals import TaskEnds, tell_ends
from penstock.django.tasks_api import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
    task_started,
)
from penstock.errors import ConfigurationError, PenstockError
from penstock.task import Task as PenstockTask
from penstock.values.limits import Limit
from penstock.values.outcome import Cancel, Snooze
from penstock.values.retry import Retry

NO_RETRIES = Retry(max=0)
DECLARED = ("retries", "timeout", "max_crashes", "executor", "limits")
"""Options of a task's declaration."""
NOT_BEGUN: dict[str, Any] = dict.fromkeys(("started_at", "last_attempted_at", "finished_at"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableTask(Task):
    """A task of Django's with options of Penstock's: `@task(retries=3, timeout=60)`."""

    retries: int | Retry | None = None
    timeout: float | None = None
    max_crashes: int | None = None
    executor: str | None = None
    key: str | None = None
    limits: tuple[Limit, ...] = ()

    def using(self, **changes: Any) -> DurableTask:
        """The task with other options for an enqueue: Django's, and `key`."""
        known = {field.name for field in fields(self)} - {"func", "takes_context", *DECLARED}
        if unknown := changes.keys() - known:
            raise TypeError(f"using() got an unexpected keyword argument {min(unknown)!r}")
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


class TaskBackend(BaseTaskBackend):
    """Enqueues Django's tasks as jobs, and reads their results."""

    task_class = DurableTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: Any) -> None:
        """Refuse a task that cannot be run; register any other for the workers."""
        super().validate_task(task)
        if getattr(task, "executor", None) == "process":
            raise InvalidTask('executor="process" is for tasks of penstock.django.app: use @app.task')
        try:
            self._known(task)
        except PenstockError as error:
            raise InvalidTask(str(error)) from error

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Write a job; inside `atomic()`, it is there if and only if the block commits."""
        self.validate_task(task)
        options: dict[str, Any] = {"queue": task.queue_name, "priority": int(task.priority)}
        if task.run_after is not None:
            options["at"] = task.run_after if timezone.is_aware(task.run_after) else _aware(task.run_after)
        if getattr(task, "key", None) is not None:
            options["key"] = task.key
        call = plain(list(args)), plain(dict(kwargs)), self.alias
        job = self._known(task).options(**options).enqueue(*call)
        result = self.get_result(job.id)
        if "key" not in options:
            # A worker may have begun with it by now; the result still says READY, as Django's backends do.
            result = replace(
                result, task=task, status=TaskResultStatus.READY, errors=[], worker_ids=[], **NOT_BEGUN
            )
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result as it stands; raises `TaskResultDoesNotExist`."""
        app, id = the_app(), str(result_id)
        return result_of(app, id, read_history(app, id), self.alias)

    def check(self, **_: Any) -> list[CheckMessage]:
        """Part of Django's checks: the app is installed, and the options are known."""
        found: list[CheckMessage] = []
        if not apps.is_installed("penstock.django"):
            found.append(
                Error(
                    f"TASKS[{self.alias!r}] uses penstock.django.TaskBackend, but INSTALLED_APPS lacks it.",
                    hint='Add "penstock.django" to INSTALLED_APPS.',
                    id="penstock.E004",
                )
            )
        if unknown := sorted(self.options.keys() - set(DECLARED)):
            known = ", ".join(DECLARED)
            message = f"TASKS[{self.alias!r}]: OPTIONS has no {unknown[0]!r}; it has {known}"
            found.append(Error(message, id="penstock.E005"))
        return found

    def _known(self, task: Any) -> PenstockTask[..., Any]:
        """The task of Penstock's for this one of Django's; declared the first time."""
        app = the_app()
        found = app.tasks.get(task.module_path)
        if found is not None:
            if getattr(getattr(found.function, "django_task", None), "func", None) is not task.func:
                raise ConfigurationError(
                    f"there is another task named {task.module_path}: rename one of them"
                )
            return found
        own = {name: getattr(task, name, None) for name in DECLARED}
        chosen = {
            name: self.options.get(name) if given in (None, ()) else given for name, given in own.items()
        }
        options = {name: value for name, value in chosen.items() if value is not None}
        options["limits"] = [_on_call(limit, task) for limit in chosen["limits"] or ()]
        handler = TaskExecution(task, type(self), tell_ends(app)).handler()
        return app.task(name=task.module_path, **{"retries": NO_RETRIES, **options})(handler)


class TaskExecution:
    """Runs one of Django's tasks in a worker: with its context, after the signal that it has started."""

    def __init__(self, task: Any, sender: type, ends: TaskEnds) -> None:
        self.task = task
        self.sender = sender
        self.ends = ends

    def handler(self) -> Callable[..., Any]:
        """The function that workers call."""

        def in_thread(args: list[Any], kwargs: dict[str, Any], backend: str) -> Any:
            result = self._begin(backend)
            with self.ends.noting(current()):
                return _value(self.task.func(*self._given(result), *args, **kwargs))

        async def on_loop(args: list[Any], kwargs: dict[str, Any], backend: str) -> Any:
            result = await sync_to_async(self._begin)(backend)
            with self.ends.noting(current()):
                return _value(await self.task.func(*self._given(result), *args, **kwargs))

        chosen: Any = on_loop if inspect.iscoroutinefunction(self.task.func) else in_thread
        chosen.django_task, chosen.django_sender = self.task, self.sender
        chosen.__qualname__ = self.task.func.__qualname__
        chosen.__module__ = self.task.func.__module__
        return chosen  # type: ignore[no-any-return]

    def _begin(self, backend: str) -> Any:
        app, id = the_app(), current().id
        result = result_of(app, id, read_history(app, id), backend)
        task_started.send_robust(self.sender, task_result=result)
        return result

    def _given(self, result: Any) -> list[Any]:
        return [TaskContext(task_result=result)] if self.task.takes_context else []


def _value(value: Any) -> Any:
    return value if isinstance(value, Snooze | Cancel) else plain(value)


def plain(value: Any) -> Any:
    """A value as JSON has it, by Django's rules; an enumeration of texts is a text."""
    return json.loads(json.dumps(normalize_json(value)))


def _aware(moment: Any) -> Any:
    return timezone.make_aware(moment)


def _on_call(limit: Limit, task: Any) -> Limit:
    """A limit whose key is the name of a parameter of Django's function: found in the stored call."""
    name = limit.key
    if not isinstance(name, str):
        return limit
    first = [None] if task.takes_context else []
    signature = inspect.signature(task.func)

    def value(call: Mapping[str, Any]) -> Any:
        bound = signature.bind(*first, *call["args"], **call["kwargs"])
        bound.apply_defaults()
        return bound.arguments[name]

    return replace(limit, key=value)
