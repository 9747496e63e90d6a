"""Reads `remind=` and `remind_every=` of a wait, and refuses a reminder that could not be called."""

from __future__ import annotations

from penstock.errors import DefinitionError
from penstock.pipelines.blueprint import Blueprint, Callee
from penstock.pipelines.callback import Callback, payload
from penstock.pipelines.options import callback_options, seconds
from penstock.pipelines.told import check_told
from penstock.pipelines.wait import Reminder

TOLD: dict[str, object] = {
    "run_id": "00000000-0000-7000-8000-000000000000",
    "pipeline": "approval",
    "signal": "approve",
    "step": "approve",
    "path": [],
    "count": 1,
    "token": "ps1",
}
"""What a reminder is told, by name, with an example of each."""


def read_reminder(where: str, remind: object, every: object) -> Reminder | None:
    """Check the two options; None: nobody is reminded."""
    if remind is None and every is None:
        return None
    if remind is None or every is None:
        missing = "remind=: the task to enqueue" if remind is None else "remind_every=: how often, in seconds"
        raise DefinitionError(f"{where}: a reminder also needs {missing}")
    period = seconds(where, "remind_every", every)
    if not period:
        raise DefinitionError(f"{where}: remind_every={every!r} must be more than 0 seconds")
    if isinstance(remind, Blueprint) or not isinstance(remind, Callee):
        raise DefinitionError(f"{where}: remind= takes a task, not {remind!r}")
    callback = Callback.of(remind.name, remind.signature, callback_options(f"{where}.remind", remind))
    check_told(f"{where}: the reminder", remind, callback, TOLD, [arguments_text(callback, TOLD)])
    return Reminder(period, callback)


def arguments_text(callback: Callback, told: dict[str, object]) -> str:
    """The payload of a reminder. A token is told to those only who name it."""
    if "token" not in callback.takes:
        told = {name: value for name, value in told.items() if name != "token"}
    return payload(callback, told)
