"""task: callables besides plain functions as tasks, and what a handler may return besides a value."""

import asyncio
import functools
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock import Cancel, Penstock, Snooze
from penstock.errors import ArgumentError, DefinitionError, JobFailed
from penstock.testing import drain, travel

ID = UUID("12345678-1234-5678-1234-567812345678")


class Planet(Enum):
    """As in Python's own documentation: members are tuples."""

    MERCURY = (3.303e23, 2.4397e6)
    EARTH = (5.976e24, 6.37814e6)

    def __init__(self, mass: float, radius: float) -> None:
        self.mass = mass
        self.radius = radius


def paint(thing: str, shade: UUID, twice: bool = False) -> tuple[str, UUID, bool]:
    return thing, shade, twice


async def paint_async(thing: str, shade: UUID) -> tuple[str, UUID]:
    await asyncio.sleep(0)
    return thing, shade


class Painter:
    def __init__(self, thing: str) -> None:
        self.thing = thing

    def __call__(self, shade: UUID) -> tuple[str, UUID]:
        return self.thing, shade


class AsyncPainter(Painter):
    async def __call__(self, shade: UUID) -> tuple[str, UUID]:  # type: ignore[override]
        return self.thing, shade


def test_a_partial_is_a_task_with_what_is_left_of_the_signature(app: Penstock) -> None:
    task: Any = app.task(name="red")(functools.partial(paint, "wall", twice=True))
    job = task.enqueue(ID)
    other = task.enqueue(shade=ID, twice=False)
    with pytest.raises(ArgumentError, match="expected UUID"):
        task.enqueue("red")
    with pytest.raises(ArgumentError, match="missing 'shade'"):
        task.enqueue()
    assert drain(app) == 2
    assert job.result(timeout=0) == ("wall", ID, True)
    assert other.result(timeout=0) == ("wall", ID, False)


@pytest.mark.parametrize(
    ("made", "executor"),
    [
        (functools.partial(paint_async, "wall"), "async"),
        (Painter("wall"), "thread"),
        (AsyncPainter("wall"), "async"),
        (Painter("wall").__call__, "thread"),
    ],
)
def test_other_callables(app: Penstock, made: Callable[..., Any], executor: str) -> None:
    task: Any = app.task(name="red")(made)
    job = task.enqueue(ID)
    drain(app)
    assert job.result(timeout=0) == ("wall", ID)
    assert task.executor == executor


def by_position(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


def under_its_own_name(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(first: str, *args: Any, **kwargs: Any) -> Any:
        return function(first, *args, **kwargs)

    return call


def by_name(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(**kwargs: Any) -> Any:
        return function(**kwargs)

    return call


@pytest.mark.parametrize(
    "decorator", [by_position, under_its_own_name, by_name, functools.lru_cache, staticmethod]
)
def test_a_decorator_is_called_as_it_can_be(app: Penstock, decorator: Callable[..., Any]) -> None:
    """Whatever it takes itself, it shows the signature of what it wraps: by that, arguments went by name to all."""
    task: Any = app.task(name="red", retries=0)(decorator(paint))
    jobs = [task.enqueue("wall", ID), task.enqueue(thing="wall", shade=ID, twice=False)]
    drain(app)
    assert [job.result(timeout=0) for job in jobs] == [("wall", ID, False)] * 2


def test_what_has_no_signature_is_refused(app: Penstock) -> None:
    task: Any = app.task(name="whole")(int)
    with pytest.raises(DefinitionError, match="Wrap it in a function"):
        task.enqueue("3")


def test_two_lambdas_are_two_tasks(app: Penstock) -> None:
    """All of them have one name, and the second was taken for the first declared again."""
    app.task(lambda: 1)
    with pytest.raises(DefinitionError, match="two tasks named"):
        app.task(lambda: 2)


def test_methods_of_two_objects_are_two_tasks(app: Penstock) -> None:
    """The jobs of the first were run by the second, in silence."""
    wall, door = Painter("wall"), Painter("door")
    app.task(wall.__call__)
    app.task(wall.__call__)
    with pytest.raises(DefinitionError, match="two tasks named"):
        app.task(door.__call__)
    app.task(name="door")(door.__call__)
    app.task(name="door")(wall.__call__)  # the user who names it knows what it replaces


def test_what_one_definition_makes_of_two_values_is_two_tasks(app: Penstock) -> None:
    def paints(thing: str, helper: Callable[[], str]) -> None:
        @app.task
        def paint(shade: str = thing) -> str:
            return f"{shade} {thing} {helper()} {paint.name}"

    paints("wall", lambda: "one")
    paints("wall", lambda: "other")  # as when a test declares its tasks anew
    with pytest.raises(DefinitionError, match="two tasks named"):
        paints("door", lambda: "one")


def test_a_changed_definition_takes_the_place_of_the_one_before(app: Penstock) -> None:
    """As when a module is loaded again, or a cell of a notebook is run again."""
    for thing in ("wall", "door"):
        spaces: dict[str, Any] = {"app": app, "__name__": "notebook", "by_position": by_position}
        exec(f"@app.task\n@by_position\ndef paint(thing={thing!r}):\n    return thing", spaces)
    job = spaces["paint"].enqueue()
    drain(app)
    assert job.result(timeout=0) == "door"


def test_enum_members_that_are_tuples(app: Penstock) -> None:
    @app.task(retries=0)
    def visit(planet: Planet, others: dict[Planet, list[Planet]]) -> list[Planet]:
        return [planet, *others, *others[Planet.EARTH]]

    job = visit.enqueue(Planet.EARTH, {Planet.EARTH: [Planet.MERCURY]})
    drain(app)
    assert job.result(timeout=0) == [Planet.EARTH, Planet.EARTH, Planet.MERCURY]


def test_a_path_beside_a_text_stays_a_path(app: Penstock) -> None:
    @app.task(retries=0)
    def read(one: str | Path, several: list[Path | str]) -> list[str | Path]:
        assert isinstance(one, Path)
        return [one, *several]

    job = read.enqueue(Path("/etc/hosts"), ["a", Path("b")])
    drain(app)
    assert job.result(timeout=0) == [Path("/etc/hosts"), "a", Path("b")]


@pytest.mark.parametrize(
    ("reason", "says"), [(ValueError("sold out"), "sold out"), (410, "410"), (None, "cancelled")]
)
def test_a_reason_to_cancel_may_be_anything(app: Penstock, reason: Any, says: str) -> None:
    """A reason that was no text could not be settled: the job stayed running for as long as its worker lived."""

    @app.task
    def order() -> Cancel:
        return Cancel(reason)

    job = order.enqueue()
    drain(app)
    assert job.status == "cancelled"
    with pytest.raises(JobFailed, match=says):
        job.result(timeout=0)


def test_a_snooze_may_be_a_timedelta(app: Penstock) -> None:
    @app.task
    def look() -> Snooze:
        return Snooze(timedelta(minutes=1))

    job = look.enqueue()
    assert drain(app) == 1
    assert job.status == "scheduled"
    travel(app, 59)
    assert drain(app) == 0
    travel(app, 2)
    assert drain(app) == 1
