"""Where new steps go: nodes under construction, the scope and the arm they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.errors import DefinitionError
from penstock.pipelines.definition import Kind
from penstock.pipelines.draft import Arm, Draft, Scope
from penstock.pipelines.expressions import Expr, Output
from penstock.pipelines.handles import Handle, label_of, made_by, node_of, scope_of


@dataclass(frozen=True, slots=True)
class Frame:
    """Where new steps go: the arm under construction, and the scope its switch is in."""

    arm: Arm | None = None
    scope: Scope = ()


class Drafting:
    """The drafts of one pipeline, and the place where the next one goes."""

    def __init__(self, pipeline: str, host: object = None) -> None:
        self.pipeline = pipeline
        self.host = host
        """The app, if there is one, that the pipeline is declared on."""
        self.frame = Frame()
        self._drafts: dict[str, Draft] = {}
        self._collects: dict[str, Handle] = {}

    @contextmanager
    def within(self, frame: Frame) -> Iterator[None]:
        """Build inside an arm."""
        outer, self.frame = self.frame, frame
        try:
            yield
        finally:
            self.frame = outer

    def scope_of_arm(self, arm: Arm) -> Scope:
        """The scope that the arm's switch is in."""
        return self._drafts[arm[0]].scope

    def collect(self, handle: Handle) -> Handle:
        """Close the innermost expand: a list of all its elements' values."""
        scope, label = scope_of(handle), label_of(handle)
        if not scope:
            raise DefinitionError(
                f"{label}.collect(): it is not inside an expand. collect() closes a task.map(...)"
            )
        self._own("collect", handle)
        source = node_of(handle)
        assert source is not None
        if source not in self._collects:
            # It belongs where the expand is, not where collect() was written: one list for everybody.
            expand = self._drafts[scope[-1]]
            draft = self._add(Kind.COLLECT, source, args=(Output(source),), scope=scope[:-1], arm=expand.arm)
            self._collects[source] = self._handle(draft, f"{label}.collect()")
        return self._collects[source]

    def _add(
        self,
        kind: Kind,
        base: str,
        *,
        target: str = "",
        args: tuple[Expr, ...] = (),
        scope: Scope,
        arm: Arm | None = None,
    ) -> Draft:
        arm = arm if kind is Kind.COLLECT else self.frame.arm
        draft = Draft(f"#{len(self._drafts)}", kind, base, target, args=args, scope=scope, arm=arm)
        self._drafts[draft.id] = draft
        return draft

    def _handle(self, draft: Draft, label: str) -> Handle:
        return Handle(self, Output(draft.id), draft.scope, label)

    def _place(self, step: str, inputs: Sequence[Handle]) -> Scope:
        deepest = self.frame.scope
        for handle in inputs:
            self._own(step, handle)
            scope = scope_of(handle)
            if scope[: len(deepest)] != deepest and deepest[: len(scope)] != scope:
                raise DefinitionError(
                    f"step {step!r} uses values of two different expands, one of them {label_of(handle)}. "
                    "collect() one of them first"
                )
            deepest = max(deepest, scope, key=len)
        for expand in deepest[len(self.frame.scope) :]:
            if self.frame.arm and not self._is_within(self._drafts[expand].arm, self.frame.arm):
                raise DefinitionError(
                    f"step {step!r}, in an arm, uses a value from inside an expand that was opened outside "
                    "of the switch. collect() it before the switch, or switch on a value inside the expand"
                )
        return deepest

    def _own(self, step: str, handle: Handle) -> None:
        if not made_by(handle, self):
            raise DefinitionError(
                f"step {step!r} uses {label_of(handle)}, which belongs to another pipeline. "
                "Pass it as a parameter"
            )

    def _is_within(self, arm: Arm | None, outer: Arm) -> bool:
        while arm is not None and arm != outer:
            arm = self._drafts[arm[0]].arm
        return arm == outer
