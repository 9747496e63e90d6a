"""A schedule as its caller defines it, checked by name and value, in the form in which it is stored."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from penstock.errors import ConfigurationError
from penstock.queue.jobs import NewJob
from penstock.schedules import cron as crons
from penstock.schedules.decide import Missed, Overlap, TickPolicy
from penstock.schedules.times import SECOND, Spec, span, zone_of
from penstock.task_options import KNOWN
from penstock.values import parse
from penstock.values.parse import NAME_LENGTH
from penstock.values.typed_json.json_text import dumps, loads

TASK, PIPELINE = "task", "pipeline"
SHORTEST = 0.1
"""The shortest interval in seconds; for shorter ones use a loop in a handler."""
MOST_MISSED = 100_000
TIMING = frozenset(
    {"cron", "every", "tz", "missed", "window", "limit", "overlap", "jitter", "start", "end", "paused"}
)
ARGUMENTS = ("args", "kwargs")
OPTIONS = KNOWN - {"connection", "limits", "aliases", "name", "unique", "unique_for", "on_conflict"}
"""Of a job or a run."""


@dataclass(frozen=True, slots=True)
class ScheduleDefinition:
    """A schedule as it is stored, without what becomes of it."""

    name: str
    kind: str
    target: str
    payload: str
    options: str
    """The arguments and options of every job or run of the schedule, as JSON."""
    cron: str | None = None
    every: int | None = None
    zone: str = "UTC"
    missed: str = Missed.LATEST.value
    window: int | None = None
    limit: int = TickPolicy().limit
    overlap: str = Overlap.ALLOW.value
    jitter: int = 0
    start: int | None = None
    end: int | None = None

    @property
    def revision(self) -> str:
        """A hash of the definition: the same wherever and whenever it is declared."""
        return sha256(dumps(dataclasses.asdict(self)).encode()).hexdigest()[:32]

    @property
    def timing(self) -> tuple[object, ...]:
        """The fields that decide when its ticks are."""
        return self.cron, self.every, self.zone, self.start, self.end

    def spec(self, created_at: int) -> Spec:
        """The ticks of the schedule. An interval without a start counts from when the schedule was made.

        ValueError names a field that no caller can have given: a person has changed the row.
        """
        if self.every is not None:
            _in_range("every", self.every, round(SHORTEST * SECOND))
            anchor = created_at if self.start is None else self.start
            start = anchor + self.every if self.start is None else self.start
            return Spec(None, self.zone, self.every, anchor, start, self.end)
        zone_of(self.zone)
        return Spec(crons.read(str(self.cron)), self.zone, start=self.start, end=self.end)

    @property
    def policy(self) -> TickPolicy:
        _in_range("missed_limit", self.limit, 1, MOST_MISSED)
        return TickPolicy(Missed(self.missed), self.window, self.limit)


def defined(target: Any, given: Mapping[str, object]) -> ScheduleDefinition:
    """The definition of a schedule for a task or a pipeline; refuses unknown names and wrong values."""
    if not hasattr(target, "drafted"):
        raise ConfigurationError(f"a schedule is for a task or a pipeline; {target!r} is neither")
    timing = read_timing(target.name, given)
    if (timing.get("cron") is None) == (timing.get("every") is None):
        raise ConfigurationError(
            f"{target.name}.schedule(...): give a cron expression such as '0 3 * * *', or every= seconds"
            f"{', not both' if timing.get('cron') is not None else ''}"
        )
    kind, payload, options = drafted(target, given)
    name = _name(target.name, given.get("name"), timing)
    return ScheduleDefinition(name, kind, target.name, payload, options, **timing)  # type: ignore[arg-type]


def read_timing(target: str, given: Mapping[str, object]) -> dict[str, object]:
    """When, and by which policies: the fields of a definition."""
    read: dict[str, object] = {}
    for name, reader in READERS.items():
        if given.get(name) is None:
            continue
        read[FIELDS.get(name, name)] = parse.checked(name, given[name], reader, f"{target}.schedule(...)")
    start, end = read.get("start"), read.get("end")
    if start is not None and end is not None and start > end:  # type: ignore[operator]
        raise ConfigurationError(
            f"{target}.schedule(...): it would end before it starts: exchange start= and end="
        )
    return read


def drafted(target: Any, given: Mapping[str, object], *, with_call: bool = True) -> tuple[str, str, str]:
    """The kind of the target, and the arguments and options of every job or run of the schedule."""
    options = {name: value for name, value in given.items() if name not in TIMING and name not in ARGUMENTS}
    options.pop("name", None)
    if options.get("at") is not None:
        raise ConfigurationError(f"{target.name}.schedule(...): at= is for one job: the schedule says when")
    for name in options:
        if name not in OPTIONS:
            known = OPTIONS | TIMING | set(ARGUMENTS)
            raise ConfigurationError(f"{target.name}.schedule(...): {parse.no_option(name, known)}")
    changed = target.options(**options) if options else target
    new = changed.drafted(_arguments(target.name, given) if with_call else None)
    if isinstance(new, NewJob):
        shared = {
            "queue": new.queue,
            "priority": new.priority,
            "options": new.options,
            "max_crashes": new.max_crashes,
        }
        if new.task != target.name:
            shared["task"] = new.task
        if new.labels:
            shared["labels"] = list(new.labels)
        return TASK, new.payload, _kept(shared, new.delay, new.key)
    return PIPELINE, new.args, _kept({"labels": list(new.labels)}, new.delay, new.key)


def _kept(shared: dict[str, Any], delay: float, key: str | None) -> str:
    more = {"delay": delay, "key": key}
    return dumps(shared | {name: value for name, value in more.items() if value})


def with_headers(one: ScheduleDefinition, headers: Mapping[str, str]) -> ScheduleDefinition:
    """The same with headers for every job and run of it."""
    if not headers:
        return one
    options: Any = loads(one.options)
    return dataclasses.replace(one, options=dumps({**options, "headers": dict(headers)}))


def changed(known: ScheduleDefinition, target: Any, given: Mapping[str, object]) -> ScheduleDefinition:
    """The definition with some fields changed. `target`: None, if this app does not know it."""
    for name in given:
        if name == "name":
            raise ConfigurationError(
                f"{known.name}: a schedule keeps its name: delete it, and create another"
            )
    fields: dict[str, Any] = read_timing(known.target, given)
    for name in given:
        if name in TIMING and given[name] is None:
            fields[FIELDS.get(name, name)] = getattr(
                ScheduleDefinition("", "", "", "", ""), FIELDS.get(name, name)
            )
    if "cron" in fields and "every" not in given:
        fields["every"] = None
    if "every" in fields and "cron" not in given:
        fields["cron"] = None
    renewed = dataclasses.replace(known, **fields)
    if (renewed.cron is None) == (renewed.every is None):
        raise ConfigurationError(f"{known.name}: give a cron expression or every=, one of them")
    others = {name: value for name, value in given.items() if name not in TIMING}
    return _with_other_call(renewed, target, others) if others else renewed


def _with_other_call(
    known: ScheduleDefinition, target: Any, given: Mapping[str, object]
) -> ScheduleDefinition:
    if target is None:
        raise ConfigurationError(
            f"{known.name}: this app has no {known.kind} {known.target!r}, so new arguments or options cannot be "
            "checked: update it in a program that declares it"
        )
    call = any(name in given for name in ARGUMENTS)
    _kind, payload, options = drafted(target, given, with_call=call)
    before, fresh, usual = (
        loads(known.options),
        loads(options),
        loads(drafted(target, {}, with_call=False)[2]),
    )
    assert isinstance(before, dict) and isinstance(fresh, dict) and isinstance(usual, dict)
    said = {name: value for name, value in fresh.items() if usual.get(name) != value or name in given}
    return dataclasses.replace(
        known, payload=payload if call else known.payload, options=dumps(before | said)
    )


def _arguments(target: str, given: Mapping[str, object]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    args, kwargs = given.get("args"), given.get("kwargs")
    if args is not None and (isinstance(args, str | bytes) or not isinstance(args, Sequence)):
        raise ConfigurationError(f"{target}.schedule(...): args={args!r}: give a tuple, such as ({args!r},)")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ConfigurationError(f"{target}.schedule(...): kwargs={kwargs!r}: give a dict of names")
    return args or (), kwargs or {}


def _name(target: str, given: object, timing: Mapping[str, Any]) -> str:
    if given is None:
        when = timing.get("cron") or f"every {span(timing['every'])}"
        given = f"{target} {when}"
        if len(given) > NAME_LENGTH:
            given = f"{given[: NAME_LENGTH - 9]} {sha256(given.encode()).hexdigest()[:8]}"
    return parse.checked("name", given, lambda value: parse.text(value, NAME_LENGTH, without="\0\t\n"))


def _cron(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("give five fields as a text, such as '0 3 * * *'; an interval is every=")
    crons.read(value)
    return value


def _zone(value: object) -> str:
    name = getattr(value, "key", value)
    if not isinstance(name, str) or not name:
        raise ValueError("give the name of a zone, such as 'Europe/Berlin'")
    zone_of(name)
    return name


def _in_range(column: str, value: object, least: int, most: float = math.inf) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        known = f"from {least} to {most}" if most < math.inf else f"{least} or more"
        raise ValueError(f"the column {column} of its row must be {known}, not {value!r}")


def _micros(least: float = 0.0) -> Callable[[object], int]:
    return lambda value: round(parse.seconds(value, least) * SECOND)


READERS: dict[str, Callable[[object], object]] = {
    "cron": _cron,
    "every": _micros(SHORTEST),
    "tz": _zone,
    "missed": lambda value: parse.one_of(value, Missed),
    "window": _micros(),
    "limit": lambda value: parse.whole(value, 1, MOST_MISSED),
    "overlap": lambda value: parse.one_of(value, Overlap),
    "jitter": _micros(),
    "start": parse.instant,
    "end": parse.instant,
}
FIELDS = {"tz": "zone"}
"""Fields of a definition that have another name than their option."""
