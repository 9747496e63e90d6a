"""Acts on schedules: pause, resume, trigger, backfill, create, edit, delete."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.dashboard.access import Right
from penstock.dashboard.acts import DashboardAct, Done, Form, WrongForm, optional_text, text_of
from penstock.dashboard.http import address
from penstock.dashboard.run_acts import call_of, has_arguments, seconds_of
from penstock.errors import PenstockError
from penstock.values.plain import counted

if TYPE_CHECKING:
    from penstock.dashboard.views import View
    from penstock.schedules.schedule import Schedule

OPTIONS = ("tz", "missed", "overlap", "queue")
BOUNDS = ("start", "end")


def _schedule(view: View, form: Form) -> Schedule:
    return view.app.schedule(text_of(form, "name"))


def page_of(name: str) -> str:
    """The address of a schedule's page."""
    return address("/schedule", {"name": name})


def pause_schedule(view: View, form: Form) -> Done:
    """Pause the schedule until it is resumed, also across deploys."""
    done = _schedule(view, form).pause(optional_text(form, "why"))
    return Done("The schedule is paused." if done else "The schedule was paused already.", bad=not done)


def resume_schedule(view: View, form: Form) -> Done:
    """Resume the schedule; it continues with the next tick."""
    done = _schedule(view, form).resume()
    return Done("The schedule goes on." if done else "The schedule was not paused.", bad=not done)


def trigger_schedule(view: View, form: Form) -> Done:
    """Start the job or run now, besides the ticks."""
    started = _schedule(view, form).trigger()
    return Done("A job or run was started, besides the ticks.", {"started": started.id})


def backfill_schedule(view: View, form: Form) -> Done:
    """Fire the ticks of a past period that have not fired."""
    start, end = _instant(form, "start"), _instant(form, "end")
    overlap = optional_text(form, "overlap") or "allow"
    number = _schedule(view, form).backfill(start, end, overlap)
    return Done(f"{counted(number, 'tick')} will be fired, unless fired before.", {"ticks": number})


def delete_schedule(view: View, form: Form) -> Done:
    """Delete a schedule and its ticks; jobs and runs that it has started go on."""
    name = text_of(form, "name")
    done = view.app.schedule(name).delete()
    words = f"The schedule {name} was deleted." if done else f"There is no schedule {name}."
    return Done(words, {"deleted": done}, to="/schedules", bad=not done)


def create_schedule(view: View, form: Form) -> Done:
    """Create a schedule. The same form sent again changes nothing; another definition for its name is refused."""
    target = _target(view, text_of(form, "target"))
    args, kwargs = call_of(form)
    timing = _timing(form)
    if not timing:
        raise WrongForm("say when: fill in either cron or every")
    name = optional_text(form, "name")
    given: dict[str, Any] = {"name": name} if name else {}
    made = view.app.schedules.create(
        target,
        args=args,
        kwargs=kwargs,
        paused=bool(form.get("paused")),
        redefine=False,
        **given,
        **timing,
        **_options(form),
        **_bounds(form),
    )
    return Done(f"{made.name} fires {made.description}.", {"name": made.name}, to=page_of(made.name))


def rights_on_calls(_view: View, form: Form) -> list[Right]:
    """The right to enqueue, if the form changes what is called or its arguments: that starts work of the viewer's
    choice."""
    says = optional_text(form, "target") is not None or has_arguments(form)
    return [Right.ENQUEUE] if says else []


def edit_schedule(view: View, form: Form) -> Done:
    """Change parts of the definition, from the next tick on."""
    found = _schedule(view, form)
    given = _timing(form) | _options(form) | _changed_bounds(found, _bounds(form))
    if has_arguments(form):
        args, kwargs = call_of(form)
        given |= {"args": args, "kwargs": kwargs}
    found.update(**given)
    return Done(f"{found.name} fires {found.description}.", {"name": found.name}, to=page_of(found.name))


SCHEDULE_ACTS: tuple[DashboardAct, ...] = (
    DashboardAct("pause-schedule", Right.SCHEDULES, pause_schedule),
    DashboardAct("resume-schedule", Right.SCHEDULES, resume_schedule),
    DashboardAct("trigger-schedule", Right.SCHEDULES, trigger_schedule),
    DashboardAct("backfill-schedule", Right.SCHEDULES, backfill_schedule),
    DashboardAct("create-schedule", Right.SCHEDULES, create_schedule, rights_on_calls),
    DashboardAct("edit-schedule", Right.SCHEDULES, edit_schedule, rights_on_calls),
    DashboardAct("delete-schedule", Right.SCHEDULES, delete_schedule),
)


def _timing(form: Form) -> dict[str, Any]:
    """`cron` or `every`, whichever field is filled in."""
    cron, every = optional_text(form, "cron"), form.get("every")
    if cron is not None and every not in (None, ""):
        raise WrongForm("fill in either cron or every, not both")
    if cron is not None:
        return {"cron": cron}
    return {} if every in (None, "") else {"every": seconds_of(form, "every", 0.0)}


def _options(form: Form) -> dict[str, Any]:
    given: dict[str, Any] = {name: value for name in OPTIONS if (value := optional_text(form, name))}
    if "jitter" in form:
        given["jitter"] = seconds_of(form, "jitter", 0.0)
    return given


def _bounds(form: Form) -> dict[str, Any]:
    """`start` and `end`, as far as the form has them; an empty field is None: no bound."""
    return {name: _instant(form, name) if form[name] else None for name in BOUNDS if name in form}


def _changed_bounds(known: Schedule, given: dict[str, Any]) -> dict[str, Any]:
    """The bounds that the viewer has changed: a form shows them cut to milliseconds."""
    shown = {"start": known.start, "end": known.end}
    return {name: value for name, value in given.items() if _cut(value) != _cut(shown[name])}


def _cut(value: datetime | None) -> datetime | None:
    return value and value.replace(microsecond=value.microsecond // 1000 * 1000)


def _target(view: View, name: str) -> Any:
    found = view.app.find_pipeline(name) or view.app.find_task(name)
    if found is None:
        raise PenstockError(f"this app knows no task and no pipeline {name!r}")
    return found


def _instant(form: Form, name: str) -> datetime:
    """An instant in ISO 8601; without a zone it is UTC."""
    text = text_of(form, name)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise WrongForm(f"{name} is {text!r}: give an instant such as 2026-11-01T00:00") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
