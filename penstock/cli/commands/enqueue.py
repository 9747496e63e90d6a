"""`penstock enqueue`: enqueues one job, or one for each line of a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.exit_codes import UsageError, out
from penstock.cli.load_app import find_attribute, load_module, others_in
from penstock.cli.options import AsJson, By, Why, acting
from penstock.cli.output import progress, show_json
from penstock.pipelines.pipeline import Pipeline
from penstock.task import Task
from penstock.values.plain import counted

CHUNK = 5000


def enqueue(
    target: Annotated[str, typer.Argument(metavar="MODULE:TASK", help="such as shop:send_receipt")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="values as JSON or plain text; name=value by name")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="a line of JSON per call; - is stdin")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="another queue than the task's own")] = None,
    priority: Annotated[int | None, typer.Option(help="larger comes first")] = None,
    delay: Annotated[float | None, typer.Option(help="seconds to wait")] = None,
    key: Annotated[str | None, typer.Option(help="a second enqueue with the key gives the first job")] = None,
    by: By = None,
    why: Why = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue a task. One call, or one for each line of a file: a list of arguments, or an object of them."""
    task = _task(target).options(**_given(queue=queue, priority=priority, delay=delay, key=key))
    with acting(by, why):
        if source is None:
            args, kwargs = read_arguments(arguments or [])
            ids = [task.enqueue(*args, **kwargs).id]
        else:
            ids = _enqueue_all(task, _calls(source))
    if as_json:
        show_json(ids)
    elif source is None:
        out.print(ids[0], markup=False)
    else:
        out.print(f"enqueued {counted(len(ids), 'job')}", markup=False)


def _enqueue_all(task: Task[Any, Any], calls: Iterable[Any]) -> list[str]:
    ids: list[str] = []
    remaining = iter(calls)
    with progress("enqueued") as advance:
        while chunk := list(islice(remaining, CHUNK)):
            ids += [job.id for job in task.enqueue_many(chunk)]
            advance(len(chunk))
    return ids


def _task(target: str) -> Task[Any, Any]:
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise UsageError(f"{target!r} is not of the form module:task, such as shop:send_receipt")
    home = load_module(module)
    found = find_attribute(home, name)
    if not isinstance(found, Task):
        others = others_in(home, Task, name, "tasks")
        raise UsageError(f"{target} is not a task but of type {type(found).__name__}{others}")
    return found


def trigger_all(pipeline: Pipeline, source: str) -> list[str]:
    """Trigger a run for each line of a file, in chunks; the runs of a chunk start together."""
    ids: list[str] = []
    remaining = iter(_calls(source))
    with progress("triggered") as advance:
        while chunk := list(islice(remaining, CHUNK)):
            ids += [run.id for run in pipeline.trigger_many(chunk)]
            advance(len(chunk))
    return ids


def _calls(source: str) -> Iterator[Any]:
    """The calls of a file. A line that cannot be read is refused by its number: its chunk and those after it are not
    enqueued."""
    try:
        lines = sys.stdin if source == "-" else Path(source).open(encoding="utf-8")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror}") from error
    with lines:
        for number, line in _numbered(lines, source):
            if not line.strip():
                continue
            try:
                call = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError(
                    f"line {number} of {source} is not JSON that can be read: {error}"
                ) from error
            yield call if isinstance(call, list | dict) else [call]


def _numbered(lines: Iterable[str], source: str) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers; a line that is not text is refused by its number."""
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            yield number, line
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not UTF-8 after line {number}: {error}") from error
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror}") from error


def read_arguments(given: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named values of a command line."""
    args, kwargs = [], {}
    for text in given:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            kwargs[name] = read_value(value)
        else:
            args.append(read_value(text))
    return args, kwargs


def read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
    except RecursionError:
        raise UsageError(f"{text[:20]}… is nested too deeply to be read") from None


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
