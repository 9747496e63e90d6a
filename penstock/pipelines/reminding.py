"""Reads `remind=` and `remind_every=` of a wait, and refuses a reminder that could not be called."""

from __future__ import annotations

from penstock.errors import DefinitionError, PenstockError
from penstock.pipelines.blueprint import Blueprint, Callee
from penstock.pipelines.callback import Callback
from penstock.pipelines.options import callback_options, seconds
from penstock.pipelines.wait import Reminder
from penstock.values.jsontext import dumps
from penstock.values.layout import KEYWORDS
from penstock.values.signature import Signature

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
    _check(where, remind, callback)
    return Reminder(period, callback)


def arguments_text(callback: Callback, told: dict[str, object]) -> str:
    """The payload of a reminder. A token is told to those only who name it."""
    if "token" not in callback.takes:
        told = {name: value for name, value in told.items() if name != "token"}
    given, rest = callback.arguments(told)
    return dumps({**given, KEYWORDS: rest} if rest else given)


def _check(where: str, task: Callee, callback: Callback) -> None:
    needed = [
        p.name
        for p in task.signature.parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    given, _ = callback.arguments(TOLD)
    missing = [name for name in needed if name not in given]
    if missing:
        others = ", ".join(TOLD)
        raise DefinitionError(
            f"{where}: the reminder {task.name!r} needs {missing[0]!r}, and is told only {others}"
        )
    codec = getattr(task, "codec", None)
    if isinstance(codec, Signature):
        try:
            codec.decode_arguments(arguments_text(callback, TOLD))
        except PenstockError as error:
            raise DefinitionError(f"{where}: the reminder does not accept what it is told: {error}") from None
