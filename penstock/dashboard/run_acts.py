"""Acts on runs: pause, resume, cancel, signal, revive, retry a step, fork, repeat, follow, migrate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.dashboard.access import Right
from penstock.dashboard.acts import DashboardAct, Done, Form, WrongForm, id_of, optional_text, text_of
from penstock.errors import CancelConflict, PenstockError
from penstock.pipelines.run import Run
from penstock.values.parse import parse_seconds

if TYPE_CHECKING:
    from penstock.dashboard.views import View

CHOICES: dict[str, object] = {"approve": True, "reject": False}
"""The two answers that most signals have."""


def _run(view: View, form: Form) -> Run:
    return view.app.run(id_of(form))


def pause_run(view: View, form: Form) -> Done:
    """Start no further step."""
    done = _run(view, form).pause()
    return Done(
        "The run is paused: no further step starts." if done else "The run was paused already.", bad=not done
    )


def resume_run(view: View, form: Form) -> Done:
    """Go on after a pause."""
    done = _run(view, form).resume()
    return Done("The run goes on." if done else "The run was not paused.", bad=not done)


def cancel_run(view: View, form: Form) -> Done:
    """Cancel the run: start no further step, tell running steps to stop, and give them up after the grace."""
    try:
        done = _run(view, form).cancel(seconds_of(form, "grace", 10.0))
    except CancelConflict as error:
        return Done(str(error), bad=True)
    return Done(
        "The run is being cancelled." if done else "Its cancellation was requested before.", bad=not done
    )


def signal_run(view: View, form: Form) -> Done:
    """Give a signal that a step waits for: a value, or the answer of the buttons approve and reject."""
    name, choice, text = text_of(form, "signal"), optional_text(form, "choice"), optional_text(form, "value")
    value = CHOICES[choice] if choice in CHOICES and text is None else json_or_text(text)
    given = _run(view, form).signal(name, value, path_of_form(form))
    words = (
        f"The signal {name} was given."
        if given
        else f"The signal {name} was given before, and that one stands."
    )
    return Done(words, {"given": given}, bad=not given)


def revive_run(view: View, form: Form) -> Done:
    """Revive the run: a new run keeps what is finished and does the rest again."""
    definition = "current" if form.get("current") else "own"
    new = _run(view, form).revive(bool(form.get("context")), definition=definition)
    return _new_run("The run goes on as this one, which keeps what was finished.", new)


def retry_step(view: View, form: Form) -> Done:
    """Do one failed step again."""
    step = text_of(form, "step")
    new = _run(view, form).retry_step(step)
    return _new_run(f"{step} is done again in this run, which keeps what was finished.", new)


def fork_run(view: View, form: Form) -> Done:
    """Fork the run: a new run does one step and what depends on it again, and keeps the rest."""
    step = text_of(form, "step")
    new = _run(view, form).fork(step)
    return _new_run(f"{step} and what depends on it is done again in this run, which keeps the rest.", new)


def rerun_run(view: View, form: Form) -> Done:
    """Repeat the run from the beginning, with the same arguments."""
    return _new_run("This run repeats the other from the beginning.", _run(view, form).rerun())


def repeat_run(view: View, form: Form) -> Done:
    """Repeat the run from the beginning, with other arguments."""
    return _new_run(
        "This run repeats the other with new arguments.", _run(view, form).rerun(json_arguments(form))
    )


def migrate_run(view: View, form: Form) -> Done:
    """Continue the run with the definition that the app has now."""
    done = _run(view, form).migrate()
    words = "The run goes on with today's definition." if done else "The run has today's definition already."
    return Done(words, bad=not done)


def follow_run(view: View, form: Form) -> Done:
    """Start a pipeline when this run has succeeded."""
    pipeline = _pipeline(view, form)
    args, kwargs = call_of(form)
    new = _run(view, form).then(pipeline, *args, **kwargs).runs[0]
    return Done(f"{pipeline.name} starts when this run has succeeded.", {"run": new.id})


def start_run(view: View, form: Form) -> Done:
    """Start a run of a pipeline."""
    pipeline = _pipeline(view, form)
    key = optional_text(form, "key")
    args, kwargs = call_of(form)
    new = (pipeline.options(key=key) if key else pipeline).trigger(*args, **kwargs)
    return _new_run("The run was started.", new)


RUN_ACTS: tuple[DashboardAct, ...] = (
    DashboardAct("pause-run", Right.RUNS, pause_run),
    DashboardAct("resume-run", Right.RUNS, resume_run),
    DashboardAct("cancel-run", Right.RUNS, cancel_run),
    DashboardAct("signal-run", Right.RUNS, signal_run),
    DashboardAct("revive-run", Right.RUNS, revive_run),
    DashboardAct("retry-step", Right.RUNS, retry_step),
    DashboardAct("fork-run", Right.RUNS, fork_run),
    DashboardAct("rerun-run", Right.RUNS, rerun_run),
    DashboardAct("migrate-run", Right.RUNS, migrate_run),
    DashboardAct("repeat-run", Right.ENQUEUE, repeat_run),
    DashboardAct("follow-run", Right.ENQUEUE, follow_run),
    DashboardAct("start-run", Right.ENQUEUE, start_run),
)


# Fields of forms


def seconds_of(form: Form, name: str, default: float) -> float:
    """A field that is a duration: seconds, or text such as "5m"."""
    given = form.get(name)
    if given in (None, ""):
        return default
    try:
        return float(parse_seconds(given))  # type: ignore[arg-type]
    except (TypeError, ValueError, AttributeError) as error:
        raise WrongForm(f"{name} is {given!r}: {error}") from None


def json_or_text(text: str | None) -> object:
    """A value as JSON; a text that is not JSON stands for itself, an empty one for no value."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def has_arguments(form: Form) -> bool:
    """True if the form has arguments for a call."""
    given = form.get("args")
    return given is not None and (not isinstance(given, str) or bool(given.strip()))


def json_arguments(form: Form) -> Sequence[Any] | Mapping[str, Any] | None:
    """Arguments as a JSON list or object; None if the field is empty."""
    if not has_arguments(form):
        return None
    given = form["args"]
    try:
        found = json.loads(given) if isinstance(given, str) else given
    except ValueError as error:
        raise WrongForm(f"the arguments are no JSON: {error}") from None
    if not isinstance(found, list | dict):
        raise WrongForm("the arguments are a JSON list, or an object of names")
    return found


def call_of(form: Form) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Arguments by position and by name."""
    given = json_arguments(form)
    return ((), given) if isinstance(given, Mapping) else (given or (), {})


def path_of_form(form: Form) -> list[int] | None:
    """The element that a signal is for: `3.17`, or a list of whole numbers; None: all."""
    given = form.get("path")
    if given is None or given in ("", []):
        return None
    parts = given if isinstance(given, list) else str(given).split(".")
    try:
        return [int(part) for part in parts]
    except (TypeError, ValueError):
        raise WrongForm(f"path is {given!r}: give whole numbers with dots between them") from None


def _pipeline(view: View, form: Form) -> Any:
    name = text_of(form, "pipeline")
    found = view.app.find_pipeline(name)
    if found is None:
        raise PenstockError(f"this app knows no pipeline {name!r}")
    return found


def _new_run(message: str, run: Run) -> Done:
    return Done(message, {"run": run.id}, to=f"/runs/{run.id}")
