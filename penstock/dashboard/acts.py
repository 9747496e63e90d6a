"""Acts: everything that a viewer can change. `perform` is the only way to one.

In this order: the request comes from the dashboard itself, the act exists, the viewer has its right and those that
the form needs beside (`further`); then the act runs
under the viewer's name, so the audit trail has it. A person is sent back to the page with a notice (303); a program,
which posts to `/act/NAME.json`, gets the result as JSON. The rights are checked here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.dashboard.access import Right
from penstock.errors import PenstockError
from penstock.operate import actions
from penstock.operate.jobs import are_steps
from penstock.values.ids import checked_id

if TYPE_CHECKING:
    from penstock.dashboard.views import View

Form = Mapping[str, object]


class WrongForm(PenstockError):
    """A field of a form is missing or cannot be read."""


@dataclass(frozen=True, slots=True)
class Done:
    """The result of an act: a sentence for people, values for programs, and the page to go to, if not back."""

    message: str
    data: Mapping[str, object] = field(default_factory=dict)
    to: str | None = None
    """A path of the dashboard, such as `/jobs/<id>`."""
    bad: bool = False
    """True if nothing was done."""


@dataclass(frozen=True, slots=True)
class DashboardAct:
    """An act by its name and the right that it needs."""

    name: str
    right: Right
    perform: Callable[[View, Form], Done]
    further: Callable[[View, Form], Iterable[Right]] = lambda _view, _form: ()
    """The rights that this form needs beside `right`."""

    def lacking(self, view: View, form: Form) -> Right | None:
        """The first right that the viewer lacks for this form; None: the act may be done."""
        return next((right for right in self.further(view, form) if not view.may(right)), None)


def text_of(form: Form, name: str) -> str:
    """A field that must be there."""
    value = form.get(name)
    if not isinstance(value, str) or not value.strip():
        raise WrongForm(f"the field {name!r} is missing")
    return value.strip()


def optional_text(form: Form, name: str) -> str | None:
    value = form.get(name)
    return value.strip() if isinstance(value, str) and value.strip() else None


def id_of(form: Form, name: str = "id") -> str:
    """A field that is an id."""
    return checked_id(text_of(form, name))


def ids_of(form: Form, name: str = "id") -> list[str]:
    """A field that is one id or several."""
    value = form.get(name, [])
    given = value if isinstance(value, list) else [value]
    return [checked_id(str(id)) for id in given]


def retry_jobs(view: View, form: Form) -> Done:
    """Run failed or cancelled jobs again."""
    ids = ids_of(form)
    done = actions.retry(view.app, ids)
    return _changed(ids, done, "will run again", "is neither failed nor cancelled")


def cancel_jobs(view: View, form: Form) -> Done:
    """Cancel jobs that wait or run."""
    ids = ids_of(form)
    done = actions.cancel(view.app, ids)
    return _changed(ids, done, "will end cancelled", "was over already")


def discard_jobs(view: View, form: Form) -> Done:
    """Take failed jobs off the list of dead letters."""
    ids = ids_of(form)
    done = actions.discard(view.app, ids)
    return _changed(ids, done, "discarded", "is no dead letter")


def rights_on_steps(view: View, form: Form) -> list[Right]:
    """The rights for a job that is a step: it belongs to its run, so cancelling it is an act on the run too."""
    return [Right.RUNS] if view.read(are_steps, ids_of(form)) else []


def _changed(ids: list[str], done: list[str], well: str, otherwise: str) -> Done:
    if not ids:
        return Done("no job was chosen", {"done": []}, bad=True)
    if len(ids) == 1:
        return Done(f"job {ids[0]} {well if done else otherwise}", {"done": done}, bad=not done)
    return Done(f"{len(done)} of {len(ids)} jobs: {well}", {"done": done}, bad=not done)


ACTS: tuple[DashboardAct, ...] = (
    DashboardAct("retry-jobs", Right.JOBS, retry_jobs),
    DashboardAct("cancel-jobs", Right.JOBS, cancel_jobs, rights_on_steps),
    DashboardAct("discard-jobs", Right.JOBS, discard_jobs),
)
