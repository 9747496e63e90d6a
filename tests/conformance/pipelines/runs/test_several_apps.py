"""pipelines/define/other_apps: a step of another app is accepted only if a worker of this database can run it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import DefinitionError
from penstock.testing import drain

pytestmark = pytest.mark.standard_profile  # the other app is on SQLite

Way = Callable[[Penstock, Any], object]

STEPS: dict[str, Way] = {
    "a step": lambda app, theirs: app.pipeline(name="p")(_calling(theirs)).trigger(1),
    "an expand": lambda app, theirs: _own(app).expand(theirs).trigger(1),
    "a start": lambda app, theirs: app.flow("p").start(theirs).trigger(1),  # type: ignore[arg-type]
    "a follower": lambda app, theirs: _own(app).trigger(1).then(theirs, 1),
}
CALLBACKS: dict[str, Way] = {
    "an argument": lambda app, theirs: app.pipeline(name="p", on_complete=[theirs])(_same),
    "a verb": lambda app, theirs: _own(app).on_halt(theirs),
    "on failure": lambda app, theirs: _own(app).on_failure("continue", theirs),
}


@pytest.mark.parametrize("kind", ["task", "pipeline"])
@pytest.mark.parametrize("way", [*STEPS, *CALLBACKS])
def test_what_lives_on_another_database_is_refused(
    app: Penstock, app_on: Callable[..., Penstock], tmp_path: Path, way: str, kind: str
) -> None:
    """The run would have waited for ever."""
    other = app_on(f"sqlite:///{tmp_path}/other.db")
    task = other.task(name="theirs")(_same)
    theirs = task if kind == "task" else other.flow("their_flow").start(task)
    with pytest.raises(DefinitionError, match=r"their.* belongs to another app, on another database"):
        (STEPS | CALLBACKS)[way](app, theirs)


def test_on_the_same_database_their_worker_runs_it(app: Penstock, make_app: Callable[..., Penstock]) -> None:
    other = make_app()
    task = other.task(name="theirs")(_same)
    run = app.flow("p").start(task).chain(app.task(name="own")(_same)).trigger(1)
    drain(app)
    drain(other)
    drain(app)
    assert run.result(0) == 1


def test_what_both_apps_have_declared_is_fine(
    app: Penstock, app_on: Callable[..., Penstock], tmp_path: Path
) -> None:
    other = app_on(f"sqlite:///{tmp_path}/other.db")
    task = other.task(name="both")(_same)
    app.task(name="both")(_same)
    run = app.flow("p").start(task).trigger(1)
    drain(app)
    assert run.result(0) == 1


def _same(x: int) -> int:
    return x


def _calling(theirs: Any) -> Callable[[int], Any]:
    def describe(x: int) -> Any:
        return theirs(x)

    return describe


def _own(app: Penstock) -> Any:
    return app.flow("p").start(app.task(name="own")(_same))
