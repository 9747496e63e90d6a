"""Refuses a task that could not be called with what it will be told: nobody would look for a call that never came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.errors import DefinitionError, PenstockError
from penstock.pipelines.blueprint import Callee
from penstock.pipelines.callback import ALIASES, Callback
from penstock.values.signature import Signature


def check_told(
    where: str, task: Callee, callback: Callback, told: Mapping[str, object], payloads: Sequence[str]
) -> None:
    """`told`: an example. `payloads`: the same and others; one that it takes is enough."""
    given, _ = callback.arguments(told)
    needed = [p for p in task.signature.parameters.values() if p.default is p.empty]
    missing = [
        p.name for p in needed if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in given
    ]
    if missing:
        names = ", ".join([name for name in told if name not in ALIASES])
        raise DefinitionError(f"{where} {task.name!r} needs {missing[0]!r}, and is told only {names}")
    codec = getattr(task, "codec", None)
    refusals = [_refusal(codec, each) for each in payloads] if isinstance(codec, Signature) else []
    if refusals and all(refusals):
        raise DefinitionError(f"{where} does not accept what it is told: {refusals[0]}")


def _refusal(codec: Signature, payload: str) -> PenstockError | None:
    try:
        codec.decode_arguments(payload)
    except PenstockError as error:
        return error
    return None
