"""`assert_enqueued`: checks which jobs were enqueued and which runs were triggered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from penstock.async_bridge import AsyncBridge
from penstock.errors import ConfigurationError, UnknownTask
from penstock.job import Job
from penstock.pipelines.advance import read as reading
from penstock.pipelines.pipeline import Pipeline
from penstock.queue import job_records
from penstock.task import Task
from penstock.values.typed_json.json_text import dumps, loads
from penstock.values.typed_json.parameters import KEYWORDS, REST

if TYPE_CHECKING:
    from penstock.app import Penstock

Known = Task[Any, Any] | Pipeline
NOT_GIVEN = object()
SHOWN = 20
"""How many jobs that do not match are listed."""


@dataclass(frozen=True, slots=True)
class EnqueuedWork:
    """A job as it was enqueued, or a run as it was triggered; a run has no queue."""

    id: str
    queue: str | None
    status: str
    arguments: Mapping[str, object]

    def __str__(self) -> str:
        where = "" if self.queue is None else f"  queue={self.queue}"
        return f"{_call(self.arguments)}{where}  {self.status}"


def assert_enqueued(
    app: Penstock | Known,
    task: object = NOT_GIVEN,
    /,
    *args: object,
    queue: str | None = None,
    count: int | None = None,
    **kwargs: object,
) -> list[Any]:
    """Assert that jobs of this task were enqueued with these arguments, whatever became of them; those jobs.

    Arguments that are not given may be anything. `count` asks for exactly so many; 0 for none. The app may be left
    out before a task, which knows its own; the arguments may also be given as `args=` and `kwargs=`. Of a pipeline,
    that it was triggered; its runs.
    """
    host, known, given = _asked(app, task, args)
    wanted = _wanted(known, *_spelled_out(known, given, kwargs))
    host.prepare()
    of = reading.runs_of if isinstance(known, Pipeline) else job_records.jobs_of
    rows = host.database.read(of, known.name)
    seen = [EnqueuedWork(id, at, status, _arguments(known, payload)) for id, at, status, payload in rows]
    matching = [job for job in seen if queue in (None, job.queue) and _fits(wanted, job.arguments)]
    if len(matching) != count if count is not None else not matching:
        raise AssertionError(_explain(known, wanted, queue, count, matching, seen))
    if isinstance(known, Pipeline):
        return [host.run(run.id) for run in matching]
    return [Job(host, job.id, known) for job in matching]


async def assert_enqueued_async(
    app: Penstock | Known,
    task: object = NOT_GIVEN,
    /,
    *args: object,
    queue: str | None = None,
    count: int | None = None,
    **kwargs: object,
) -> list[Any]:
    """`assert_enqueued` for async tests."""
    bridge: AsyncBridge = _asked(app, task, args)[0].bridge
    return await bridge.run(assert_enqueued, app, task, *args, queue=queue, count=count, **kwargs)


def _asked(app: Any, task: object, args: tuple[object, ...]) -> tuple[Any, Known, tuple[object, ...]]:
    """The app, the task or pipeline, and the arguments by position."""
    if isinstance(app, Task | Pipeline):
        app, task, args = app.host, app, args if task is NOT_GIVEN else (task, *args)
    known = app.find_task(task) or app.find_pipeline(task) if isinstance(task, str) else task
    if isinstance(known, Task | Pipeline):
        return app, known, args
    if isinstance(task, str):
        raise UnknownTask(task, app.task_names)
    raise ConfigurationError("assert_enqueued(app, task, ...): give a task or a pipeline, or its name")


def _spelled_out(
    task: Known, args: tuple[object, ...], kwargs: dict[str, Any]
) -> tuple[tuple[object, ...], dict[str, Any]]:
    """`args=` and `kwargs=` hold arguments, unless these are names of the task's own."""
    parameters = task.signature.parameters
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return args, kwargs
    if "args" in kwargs and "args" not in parameters:
        args = (*args, *kwargs.pop("args"))
    if "kwargs" in kwargs and "kwargs" not in parameters:
        kwargs |= kwargs.pop("kwargs")
    return args, kwargs


def _wanted(task: Known, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
    """The arguments asked for, as they would be stored."""
    codec = task.codec
    wanted: dict[str, object] = {}
    for index, value in enumerate(args):
        raw = loads(codec.encode_value_for(index, value))
        name = codec.parameters[index] if index < len(codec.parameters) else f"{REST}{index}"
        wanted[name] = raw
    return wanted | {name: loads(codec.encode_value_for(name, value)) for name, value in kwargs.items()}


def _arguments(task: Known, payload: str) -> dict[str, object]:
    """The arguments that a handler of this job would get: stored ones, and the defaults of today."""
    raw: Any = loads(payload)
    if not isinstance(raw, dict):
        return {}
    rest, extra = raw.pop(REST, ()), raw.pop(KEYWORDS, {})
    defaults = {
        name: loads(task.codec.encode_value_for(name, parameter.default))
        for name, parameter in task.signature.parameters.items()
        if parameter.default is not Parameter.empty and name not in raw
    }
    named = len(task.codec.parameters)
    further = {f"{REST}{named + index}": value for index, value in enumerate(rest)}
    return {**raw, **defaults, **further, **extra}


def _fits(wanted: Mapping[str, object], arguments: Mapping[str, object]) -> bool:
    return all(name in arguments and arguments[name] == value for name, value in wanted.items())


def _explain(
    task: Known,
    wanted: Mapping[str, object],
    queue: str | None,
    count: int | None,
    matching: list[EnqueuedWork],
    seen: list[EnqueuedWork],
) -> str:
    where = f"  queue={queue}" if queue else ""
    word, kind = ("run", "pipeline") if isinstance(task, Pipeline) else ("job", "task")
    number = f"a {word}" if count is None else f"{count} {word}{'' if count == 1 else 's'}"
    lines = [
        f"expected {number} of {task.name}, found {len(matching)}:",
        f"  wanted  {_call(wanted, '...')}{where}",
    ]
    lines += [f"  {'found ' if job in matching else 'other '}  {job}" for job in seen[:SHOWN]]
    if len(seen) > SHOWN:
        lines.append(f"  ... and {len(seen) - SHOWN} more")
    if not seen:
        lines.append(f"  there is no {word} of this {kind} at all")
    return "\n".join(lines)


def _call(arguments: Mapping[str, object], rest: str = "") -> str:
    parts = [value if name.startswith(REST) else f"{name}={value}" for name, value in _texts(arguments)]
    return f"({', '.join([*parts, rest] if rest else parts)})"


def _texts(arguments: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(name, dumps(value)) for name, value in arguments.items()]
