"""The list of runs, and the page of one: graph, timeline, steps, waits, values, relatives, and how its definition
differs from the app's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from penstock.dashboard.pages.run_graph import SPLIT, element_name, graph_data, timeline_data
from penstock.dashboard.views import SHOWN, NotFound, Page, Shown, View
from penstock.database.transaction import Transaction
from penstock.errors import PenstockError
from penstock.operate import audit
from penstock.operate.diagnosis.explain import why_pending
from penstock.operate.pages import run_search, run_steps
from penstock.operate.pages.run_search import RunFilter
from penstock.operate.pages.run_steps import AttemptRow, RelatedRun, RunDetail, StepCounts, StepRow
from penstock.operate.runs import find_run
from penstock.pipelines.advance import run_headers
from penstock.pipelines.advance.read import stored_reasons
from penstock.pipelines.advance.run_rows import of_run, wiring_for
from penstock.pipelines.lifecycle import revivals
from penstock.pipelines.lifecycle.fork import redone_steps
from penstock.pipelines.model.definition import Definition, Node, NodeKind
from penstock.pipelines.model.diff import Difference, compare, shown
from penstock.pipelines.model.expressions import path_of, path_text
from penstock.pipelines.model.wiring import Wiring
from penstock.queue.jobs import SCHEDULE_HEADER
from penstock.values.status import Reason, RunStatus

P = ParamSpec("P")
R = TypeVar("R")
PAGE_SIZE = 50
MOST_ON_TIMELINE = 60
MOST_RELATIVES = 50
MOST_VALUES = 100
MOST_WAITS = 25
MOST_ACTS = 25
BRIEF = 2_000
REVIVABLE = (RunStatus.FAILED, RunStatus.HALTED)


def runs(view: View) -> Page:
    """The runs that a filter matches, newest first."""
    status = view.text("status")
    wanted = RunFilter(
        view.text("pipeline"),
        status if status in list(RunStatus) else None,
        view.text("key"),
        view.text("label"),
    )
    found = view.read(run_search.page_of_runs, wanted, PAGE_SIZE, view.id("before"))
    return Page(
        "runs.html",
        "Runs",
        {
            "runs": found.runs,
            "before": found.before,
            "filter": asdict(wanted),
            "counts": view.read(run_search.active_counts),
            "statuses": list(RunStatus),
            "pipelines": sorted(view.app.pipelines),
        },
    )


def run(view: View) -> Page:
    """The page of one run."""

    def read(tx: Transaction) -> tuple[RunDetail, dict[str, object]]:
        id = find_run(tx, view.args["id"])
        detail = run_steps.run_detail(tx, id)
        if detail is None:
            raise NotFound(f"there is no run {id}; it may have been pruned")
        wiring = wiring_for(view.app.engine.engine_state, tx, detail.definition, detail.pipeline)
        return detail, _Run(view, tx, detail, wiring).data()

    detail, data = view.read(read)
    return Page("run.html", f"{detail.pipeline} {detail.id[-8:]}", data, section="runs")


class _Run:
    """Collects the data for the page of a run."""

    def __init__(self, view: View, tx: Transaction, detail: RunDetail, wiring: Wiring) -> None:
        self.view = view
        self.tx = tx
        self.detail = detail
        self.wiring = wiring
        self.definition: Definition = wiring.definition
        self.over = RunStatus.stored(detail.status).terminal
        self.now = (detail.ended_at or detail.now) if self.over else detail.now - detail.now % SPLIT + SPLIT

    def read(self, work: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        return work(self.tx, *args, **kwargs)

    def data(self) -> dict[str, object]:
        view, detail, id = self.view, self.detail, self.detail.id
        nodes = [node.key for node in self.definition.nodes if node.kind.is_step]
        known = self.read(run_steps.step_counts, id, nodes)
        progress = self.read(run_steps.expand_progress, id, self.wiring)
        related = self.read(run_steps.relatives, id, MOST_RELATIVES)
        acts = self.read(audit.acts, id, None, {}, MOST_ACTS)
        difference = self._difference()
        return {
            "run": self._head(),
            "graph": graph_data(self.definition, known, progress, related.children),
            "timeline": self._timeline(known),
            "steps": [
                self._node(self.definition.by_key[key], known) for key in self.wiring.order if key in nodes
            ],
            "chosen": self._chosen(known),
            "waits": [] if self.over else self._waits(nodes, known),
            "signals": self._signals(),
            "context": self._context(),
            "lineage": self._lineage(related, acts),
            "difference": difference,
            "audit": [_act(act) for act in acts],
            "can": self._can(difference, known),
            "repeat_with": detail.args if view.sees_everything and len(detail.args) <= SHOWN else None,
            "pipelines": sorted(view.app.pipelines),
            "opened": self._opened(),
        }

    # the head

    def _head(self) -> dict[str, object]:
        detail, view = self.detail, self.view
        is_pending = detail.status == RunStatus.PENDING
        pipeline = view.app.find_pipeline(detail.pipeline)
        reasons = stored_reasons(detail.reasons)
        return {
            "id": detail.id,
            "pipeline": detail.pipeline,
            "description": "" if pipeline is None else pipeline.description,
            "status": detail.status,
            "key": detail.key,
            "labels": self.read(of_run, detail.id),
            "reasons": [{"reason": one, "means": Reason.stored(one).explanation} for one in reasons],
            "definition": detail.definition,
            "only_step": None if detail.forked_from else detail.only_step,
            "forked_at_step": detail.only_step if detail.forked_from else None,
            "created_at": detail.created_at,
            "started_at": detail.started_at,
            "paused_at": detail.paused_at,
            "ended_at": detail.ended_at,
            "scheduled_for_at": detail.scheduled_for,
            "schedule": self._schedule(),
            "seconds": (detail.ended_at - detail.started_at) / 1e6
            if detail.ended_at and detail.started_at
            else None,
            "args": view.shown(detail.pipeline, "arguments", detail.args),
            "result": self._result(),
            "pending": self._pending() if is_pending else [],
        }

    def _pending(self) -> list[str]:
        """Why the run has not begun."""
        causes = self.read(why_pending, self.detail.id, self.view.app.settings.reap_after)
        return [cause.text for cause in causes]

    def _schedule(self) -> str | None:
        """The schedule that has started the run, or the run that this one continues."""
        if self.detail.scheduled_for is None:
            return None
        return self.read(run_headers.find, self.detail.id).get(SCHEDULE_HEADER)

    def _result(self) -> Shown | None:
        """The result of the run, if it can be read cheaply: that of a stop, or the output of its last step."""
        detail = self.detail
        if detail.status != RunStatus.SUCCEEDED:
            return None
        text = detail.result
        if text is None and (reads := _single_output(self.definition)) is not None:
            step = self.read(run_steps.step_at, detail.id, reads, "")
            text = None if step is None else self.read(run_steps.output_of, step.id)
        return self.view.shown(detail.pipeline, "result", text)

    def _difference(self) -> dict[str, object] | None:
        """How the app's definition differs from the run's; None: it does not, or the app has none."""
        pipeline = self.view.app.find_pipeline(self.detail.pipeline)
        try:
            found = None if pipeline is None else compare(self.definition, pipeline.definition)
        except PenstockError:
            return None
        return difference_data(found) if found else None

    def _can(self, difference: object, known: StepCounts) -> dict[str, object]:
        """The acts that make sense for the run now, whatever the viewer's rights are."""
        status = self.detail.status
        revivable = (
            status in REVIVABLE and self.read(revivals.newest, self.detail.pipeline, self.detail.id) is None
        )
        failed = [node for node, counts in known.counts.items() if counts.get("failed")]
        return {
            "pause": status == RunStatus.RUNNING,
            "resume": status == RunStatus.PAUSED,
            "cancel": not self.over and status != RunStatus.CANCELLING,
            "revive": revivable,
            "retry": sorted(failed) if revivable else [],
            "fork": self.over and status != RunStatus.SKIPPED,
            "rerun": self.over and self.view.app.find_pipeline(self.detail.pipeline) is not None,
            "migrate": not self.over and difference is not None,
            "then": True,
        }

    # steps

    def _timeline(self, known: StepCounts) -> dict[str, object]:
        steps = self.read(run_steps.sampled_steps, self.detail.id, known, MOST_ON_TIMELINE)
        attempts = self.read(run_steps.attempts_of, [step.id for step in steps])
        told = timeline_data(steps, attempts, self.now, known.total)
        return told | {"capped": bool(known.capped)}

    def _node(self, node: Node, known: StepCounts) -> dict[str, object]:
        return {
            "key": node.key,
            "kind": node.kind.value,
            "target": node.target,
            "inside": list(node.scope),
            "counts": dict(known.counts.get(node.key, {})),
            "more": node.key in known.capped,
        }

    def _chosen(self, known: StepCounts) -> dict[str, object] | None:
        """The step that `?step=` names: its elements, and one of them with its values."""
        view, key = self.view, self.view.text("step")
        node = self.definition.by_key.get(key) if key else None
        if node is None or not node.kind.is_step:
            return None
        status, path = view.text("state"), view.text("path")
        page = self.read(
            run_steps.steps_of_node, self.detail.id, node.key, PAGE_SIZE, view.text("after"), status
        )
        single = page.steps[0] if len(page.steps) == 1 and page.after is None and status is None else None
        one = single if path is None else self.read(run_steps.step_at, self.detail.id, node.key, _path(path))
        return {
            "node": self._node(node, known),
            "call": _call(node),
            "redone": redone_steps(self.wiring, node.key),
            "options": node.options.to_json(),
            "state": status,
            "steps": [_step(step) for step in page.steps] if one is None or single is None else [],
            "after": page.after,
            "one": None if one is None else self._one(node, one),
        }

    def _one(self, node: Node, step: StepRow) -> dict[str, object]:
        view = self.view
        attempts = self.read(run_steps.attempts_of, [step.id]).get(step.id, [])
        return _step(step) | {
            "attempts": [self._attempt(step, attempt) for attempt in attempts],
            "output": view.shown(step.task, "result", self.read(run_steps.output_of, step.id)),
            "inputs": [self._input(source, step) for source in node.reads],
            "reason_means": Reason.stored(step.reason).explanation if step.reason else None,
        }

    def _input(self, source: str, step: StepRow) -> dict[str, object]:
        """The output of the node that a step reads, at the place that belongs to it."""
        node = self.definition.by_key[source]
        place = path_text(path_of(step.path)[: node.depth])
        made = self.read(run_steps.step_at, self.detail.id, source, place) if node.kind.is_step else None
        text = None if made is None else self.read(run_steps.output_of, made.id)
        return {
            "from": source,
            "job": None if made is None else made.id,
            "value": self.view.shown(step.task, "arguments", text, BRIEF),
        }

    def _attempt(self, step: StepRow, attempt: AttemptRow) -> dict[str, object]:
        error = None if attempt.error is None else f"{attempt.error_type or 'error'}: {attempt.error}"
        return asdict(replace(attempt, error=None)) | {
            "error": self.view.shown(step.task, "error", error, BRIEF),
            "seconds": (attempt.finished_at - attempt.started_at) / 1e6,
        }

    # waits, signals, context

    def _waits(self, nodes: Sequence[str], known: StepCounts) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for key in nodes:
            node = self.definition.by_key[key]
            if node.kind is not NodeKind.WAIT or not known.counts.get(key, {}).get("waiting"):
                continue
            for job, path, since, until in self.read(
                run_steps.waiting_steps, self.detail.id, node, MOST_WAITS
            ):
                found.append(
                    {
                        "name": element_name(key, path),
                        "signal": node.target,
                        "path": list(path_of(path)),
                        "job": job,
                        "since_at": since,
                        "until_at": until,
                        "default": self._default(node),
                    }
                )
        return found[:MOST_WAITS]

    def _default(self, node: Node) -> Shown | None:
        """The value of a wait when its time is over; None if it has none."""
        default = None if node.wait is None else node.wait.default
        return self.view.shown(self.detail.pipeline, "context", default, BRIEF)

    def _signals(self) -> list[dict[str, object]]:
        given = self.read(run_steps.signals_given, self.detail.id, MOST_VALUES)
        return [
            {
                "name": name,
                "path": list(path_of(path)),
                "given_at": at,
                "value": self.view.shown(self.detail.pipeline, "context", value, BRIEF),
            }
            for name, path, value, at in given
        ]

    def _context(self) -> list[dict[str, object]]:
        found = self.read(run_steps.context_values, self.detail.id, MOST_VALUES)
        return [
            {
                "key": key,
                "set_at": at,
                "value": self.view.shown(self.detail.pipeline, "context", value, BRIEF),
            }
            for key, value, at in found
        ]

    # relatives

    def _lineage(self, related: run_steps.Relatives, acts: Sequence[audit.Act]) -> dict[str, object]:
        """The runs around this one. Runs that continue it are found in the audit trail."""
        detail = self.detail
        newer = {str(act.detail["new_run"]): act.act for act in acts if act.detail.get("new_run")}
        named = {
            "parent": detail.parent,
            "revived_from": None if detail.forked_from else detail.revived_from,
            "forked_from": detail.forked_from,
            "rerun_of": detail.rerun_of,
        }
        ids = [id for id in (*named.values(), *newer) if id is not None]
        known = self.read(run_steps.briefly, ids) if ids else {}
        return {
            **{name: (known.get(id) or RelatedRun(id, "", "")) if id else None for name, id in named.items()},
            "children": related.children,
            "follows": related.follows,
            "followed_by": related.followed_by,
            "went_on_as": [known[id] for id, act in newer.items() if id in known and act != "fork"],
            "forked_as": [known[id] for id, act in newer.items() if id in known and act == "fork"],
        }

    def _opened(self) -> dict[str, object] | None:
        """The graph of a child run, opened in place by `?open=`."""
        view, id = self.view, self.view.id("open")
        detail = None if id is None else self.read(run_steps.run_detail, id)
        if detail is None or detail.parent != self.detail.id:
            return None
        wiring = wiring_for(view.app.engine.engine_state, self.tx, detail.definition, detail.pipeline)
        nodes = [node.key for node in wiring.definition.nodes if node.kind.is_step]
        known = self.read(run_steps.step_counts, detail.id, nodes)
        progress = self.read(run_steps.expand_progress, detail.id, wiring)
        return {
            "id": detail.id,
            "pipeline": detail.pipeline,
            "status": detail.status,
            "graph": graph_data(wiring.definition, known, progress),
        }


def difference_data(found: Difference) -> dict[str, object]:
    """A difference as lines that were added, removed or changed."""
    return {
        "before": found.before,
        "after": found.after,
        "summary": found.summary,
        "added": [*found.added, *[f"{source} → {target}" for source, target in found.edges_added]],
        "removed": [*found.removed, *[f"{source} → {target}" for source, target in found.edges_removed]],
        "changed": [str(change) for change in (*found.changed, *found.settings)],
    }


def _single_output(definition: Definition) -> str | None:
    """The step outside of expands whose output is the result of the run; None if the result is made of several."""
    key = shown(definition.result)
    node = definition.by_key.get(key)
    return key if node is not None and node.kind.is_step and not node.scope else None


def _call(node: Node) -> str:
    """The step as the definition has it."""
    given = [*[shown(expr) for expr in node.args], *[f"{name}={shown(expr)}" for name, expr in node.kwargs]]
    return f"{node.target}({', '.join(given)})"


def _step(step: StepRow) -> dict[str, Any]:
    took = (step.finished_at - step.claimed_at) / 1e6 if step.finished_at and step.claimed_at else None
    return asdict(step) | {"name": element_name(step.node, step.path), "seconds": took}


def _path(text: str) -> str:
    """A stored path from the path in a link; a text that is not a path matches no step."""
    try:
        return path_text(path_of(text))
    except ValueError:
        return ""


def _act(act: audit.Act) -> dict[str, object]:
    return {
        "act": act.act,
        "by": act.by,
        "why": act.why,
        "at": act.at.isoformat(),
        "detail": act.detail,
    }
