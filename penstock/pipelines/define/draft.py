"""Nodes of a definition under construction, under provisional names: keys may be given later in the function."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from penstock.errors import DefinitionError
from penstock.pipelines.model.definition import RESERVED, Node, NodeKind, StepOptions, Wait
from penstock.pipelines.model.expressions import Expr, renamed

Scope = tuple[str, ...]
Arm = tuple[str, int]

LONGEST_KEY = 120
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


@dataclass(slots=True)
class Draft:
    """A node under construction.

    `base` is what its key is made from if none is given; `after_keys` may name later steps.
    """

    id: str
    kind: NodeKind
    base: str
    target: str = ""
    key: str | None = None
    args: tuple[Expr, ...] = ()
    kwargs: tuple[tuple[str, Expr], ...] = ()
    after: tuple[str, ...] = ()
    after_keys: tuple[str, ...] = ()
    scope: Scope = ()
    arm: Arm | None = None
    arms: tuple[str | None, ...] = ()
    wait: Wait | None = None
    options: StepOptions = field(default_factory=StepOptions)
    quorum: int = 1


def short_name(name: str) -> str:
    """The last part of a dotted name, as a key."""
    plain = re.sub(r"[^A-Za-z0-9_\-]", "_", name.rsplit(".", 1)[-1])
    return plain[: LONGEST_KEY - 10] or "step"


def assign_keys(drafts: Iterable[Draft]) -> dict[str, str]:
    """Provisional name → key. A given key stays; the others are numbered in definition order."""
    drafts = list(drafts)
    taken: dict[str, str] = {}
    used: dict[str, int] = {}
    for draft in drafts:
        if draft.key is not None:
            _check_key(draft.key)
            if draft.key in used:
                raise DefinitionError(
                    f"two steps have the key {draft.key!r}. Give one of them another: .options(key=...)"
                )
            taken[draft.id] = draft.key
            used[draft.key] = 1
    for draft in drafts:
        if draft.key is None and draft.kind.is_step:
            taken[draft.id] = _unused(draft.base, used)
    for draft in drafts:
        if not draft.kind.is_step:
            base = taken.get(draft.base, draft.base).removeprefix(RESERVED)
            taken[draft.id] = _unused(f"{RESERVED}{draft.kind}.{_plain_base(base)}", used)
    return taken


def finished(draft: Draft, names: Mapping[str, str], keys: Set[str], substitutes: Mapping[str, str]) -> Node:
    """The node under its key. `substitutes`: what to wait for instead of steps with these of the `keys`."""
    return Node(
        key=names[draft.id],
        kind=draft.kind,
        target=names.get(draft.target, draft.target),
        args=tuple([renamed(expr, names) for expr in draft.args]),
        kwargs=tuple(sorted([(name, renamed(expr, names)) for name, expr in draft.kwargs])),
        after=_after(draft, names, keys, substitutes),
        scope=tuple([names[expand] for expand in draft.scope]),
        arm=(names[draft.arm[0]], draft.arm[1]) if draft.arm else None,
        arms=draft.arms,
        wait=draft.wait,
        options=draft.options,
        quorum=draft.quorum,
    )


def _after(
    draft: Draft, names: Mapping[str, str], keys: Set[str], substitutes: Mapping[str, str]
) -> tuple[str, ...]:
    for key in draft.after_keys:
        if key not in keys:
            raise DefinitionError(
                f"step {names[draft.id]!r} comes after {key!r}, but there is no such step. "
                f"Known keys: {', '.join(sorted(keys)[:12])}"
            )
    given = [substitutes.get(key, key) for key in draft.after_keys]
    return tuple(sorted({*[names[source] for source in draft.after], *given}))


def public_keys(names: Mapping[str, str]) -> Set[str]:
    """The keys that `after=` may name."""
    return {key for key in names.values() if not key.startswith(RESERVED)}


def _check_key(key: str) -> None:
    if key.startswith(RESERVED):
        raise DefinitionError(
            f"the key {key!r} is reserved: keys that begin with {RESERVED!r} are Penstock's own"
        )
    if len(key) > LONGEST_KEY or not _PLAIN.fullmatch(key):
        raise DefinitionError(
            f"the key {key!r} is not allowed: use at most {LONGEST_KEY} letters, digits, '_', '-' and '.'"
        )


def _plain_base(base: str) -> str:
    # "@merge.a" over "@switch.a" becomes "@merge.a", not "@merge.switch.a".
    head, _, rest = base.partition(".")
    return rest if rest and head in NodeKind._value2member_map_ else base


def _unused(base: str, used: dict[str, int]) -> str:
    """A key made from the base. `used` has, for each key, the last number that was given to one made from it."""
    key, number = base, used.get(base, 1)
    while key in used:
        number += 1
        key = f"{base}_{number}"
    used[base] = number
    used.setdefault(key, 1)
    return key
