"""Refuses parts that look as if they ordered what is written below them, and order nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from penstock.errors import DefinitionError
from penstock.pipelines.definition import Kind
from penstock.pipelines.draft import Draft
from penstock.pipelines.expressions import Expr, outputs_in


def check_used(drafts: Sequence[Draft], names: Mapping[str, str], result: Expr) -> None:
    """Every barrier has something behind it, and so has every wait that more steps are described after."""
    used = {node for draft in drafts for node in (*draft.after, *read_by(draft))}
    used |= set(outputs_in(result))
    keys = {key for draft in drafts for key in draft.after_keys}
    for number, draft in enumerate(drafts):
        if draft.id in used or names[draft.id] in keys:
            continue
        if draft.kind is Kind.BARRIER:
            raise DefinitionError(
                "barrier() orders nothing: no step comes after it. Keep it, and give it to the steps behind it: "
                "passed = barrier(a, b), then step.options(after=[passed])(...)"
            )
        if draft.kind is Kind.WAIT and _goes_on(drafts[number + 1 :], names, draft.after_keys):
            raise DefinitionError(
                f"wait_for({draft.target!r}) holds nothing up: no step uses its value or comes after it. Pass its "
                "value on, or give it to the steps behind it: answer = wait_for(...), then "
                "step.options(after=[answer])(...)"
            )


def read_by(draft: Draft) -> list[str]:
    """The nodes whose values it uses."""
    expressions = [*draft.args, *[expr for _, expr in draft.kwargs]]
    return [key for expr in expressions for key in outputs_in(expr)]


def _goes_on(behind: Sequence[Draft], names: Mapping[str, str], before: Collection[str]) -> bool:
    return any(draft.kind.is_step and names[draft.id] not in before for draft in behind)
