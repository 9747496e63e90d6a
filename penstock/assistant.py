"""Tools for an assistant, by the Model Context Protocol: it reads the state of jobs and runs, and acts only if that
was allowed.

Every tool is a function of the app that answers with plain values; the official SDK makes the protocol of them. What
reads is always there. What acts is not even named to the assistant unless that was allowed; each act says why, and is
in the audit under the assistant's name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

from penstock.async_bridge import in_thread
from penstock.errors import CancelConflict, PenstockError
from penstock.operate import actions, dead_letters
from penstock.operate import jobs as operate_jobs
from penstock.operate.doctor import CheckContext, Level, examine
from penstock.operate.jobs import JobFilter
from penstock.operate.runs import find_run, find_run_or_job, list_runs, notable_steps, open_waits
from penstock.values.lazy_import import Lazy
from penstock.values.parse import nearest
from penstock.values.plain import plain
from penstock.values.status import JobStatus, RunStatus

if TYPE_CHECKING:
    from mcp import server as sdk
    from mcp import types
    from mcp.server import MCPServer
    from mcp.server.mcpserver import exceptions as refusals
    from mcp.types import ToolAnnotations

    from penstock.app import Penstock
    from penstock.pipelines.run import Run
    from penstock.schema import version
else:
    refusals = Lazy("mcp.server.mcpserver.exceptions")
    sdk, types, version = Lazy("mcp.server"), Lazy("mcp.types"), Lazy("penstock.schema.version")

BY = "mcp"
MOST = 100
"""Rows of one answer: an assistant reads all of it."""
MOST_STEPS = 30
INSTRUCTIONS = (
    "Durable jobs and runs of an application. Begin with `status`, then `failures`. `explain` says why a job or a run "
    "waits, `doctor` what is wrong with the installation. Ids are UUIDs; a unique beginning, or beginning..end, will "
    "do. Times are UTC."
)

Answer = dict[str, Any]


class ReadingTools:
    """The tools that read. `of_app`: true if the app was named, with its tasks; else only its database is known."""

    def __init__(self, app: Penstock, of_app: bool = True) -> None:
        self.app = app
        self.of_app = of_app

    def status(self) -> Answer:
        """How much waits, runs and has failed in each queue, since when, and which processes are alive."""
        return _answer(overview=self.app.status(), processes=self.app.processes())

    def failures(self, task: str | None = None, queue: str | None = None, limit: int = 20) -> Answer:
        """The latest jobs whose budget is spent, each with its last error; and how many there are of each kind."""
        read = self.app.database.read
        letters = read(dead_letters.dead_letters, task, queue, None, _limit(limit))
        kinds = [
            {"task": name, "reason": reason, "count": count}
            for name, reason, count in read(dead_letters.by_reason)[:MOST]
        ]
        return _answer(failures=letters, by_task_and_reason=kinds)

    def jobs(
        self,
        status: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        before: str | None = None,
        limit: int = 20,
    ) -> Answer:
        """Jobs, newest first; `before` is the id of the job below which to go on."""
        wanted = JobFilter(
            None if status is None else JobStatus(_one_of(status, list(JobStatus))), queue, task
        )
        start = None if before is None else self.app.database.read(operate_jobs.find_job, before)
        page = self.app.database.read(operate_jobs.list_jobs, wanted, _limit(limit), start)
        return _answer(jobs=page.jobs, before=page.before)

    def runs(
        self,
        pipeline: str | None = None,
        status: str | None = None,
        key: str | None = None,
        label: str | None = None,
        limit: int = 20,
    ) -> Answer:
        """Runs of pipelines, newest first."""
        if status is not None:
            _one_of(status, list(RunStatus))
        rows = self.app.database.read(list_runs, pipeline, status, key, _limit(limit), label)
        return _answer(runs=rows)

    def show(self, id: str) -> Answer:
        """One run or job: of a run its graph, the steps that failed or are not over, the signals it waits for; of a job
        its arguments, result and every attempt with its error and traceback."""
        found, is_run = self.app.database.read(find_run_or_job, id)
        if is_run:
            return self._run(self.app.run(found))
        report = self.app.database.read(operate_jobs.job_report, found)
        if report is None:
            raise PenstockError(f"there is no job {id}")
        attempts = self.app.job(found).attempts()
        return _answer(job=report.job, arguments=report.payload, result=report.output, attempts=attempts)

    def _run(self, run: Run) -> Answer:
        graph, read = run.graph(), self.app.database.read
        steps = [
            {"id": step.id, "step": step.key, "path": step.path, "status": step.status, "error": step.error}
            for step in read(notable_steps, run.id, MOST_STEPS)
        ]
        return _answer(
            id=run.id,
            pipeline=graph.pipeline,
            status=graph.status,
            reasons=run.reasons,
            arguments=run.args,
            graph=[
                {"step": node.key, "after": node.after, "counts": node.counts}
                for node in graph.nodes
                if node.kind.is_step
            ],
            steps=steps,
            waits=read(open_waits, run.id, MOST_STEPS),
        )

    def explain(self, id: str) -> Answer:
        """Say why a job or a run waits, or where it stands, and what would help."""
        found, _ = self.app.database.read(find_run_or_job, id)
        told = self.app.explain(found)
        return _answer(id=found, status=told.status, text=told.text)

    def schedules(self, prefix: str = "") -> Answer:
        """Schedules: when each fires next, how it stands, and what troubles it."""
        return _answer(schedules=[each.described() for each in self.app.schedules(prefix=prefix, limit=MOST)])

    def doctor(self) -> Answer:
        """Look for everything that can be wrong with the installation: database, schema, clocks, workers, stuck runs,
        schedules, reconcilers. The worst comes first; what is not ok says what to do. Nothing is changed."""
        levels = [Level.PROBLEM, Level.WARNING, Level.OK]
        found = sorted(
            examine(CheckContext.of(self.app, self.of_app)), key=lambda each: levels.index(each.level)
        )
        return _answer(findings=found[:MOST], healthy=all(each.level is Level.OK for each in found))

    @property
    def tools(self) -> list[Callable[..., Answer]]:
        return [
            self.status,
            self.failures,
            self.jobs,
            self.runs,
            self.show,
            self.explain,
            self.schedules,
            self.doctor,
        ]


class ActingTools:
    """The tools that change something; each says why."""

    def __init__(self, app: Penstock) -> None:
        self.app = app

    def retry(self, ids: list[str], why: str) -> Answer:
        """Run failed or cancelled jobs again, with fresh budgets."""
        found = [self.app.database.read(operate_jobs.find_job, id) for id in ids[:MOST]]
        with self.app.acting(by=BY, why=why):
            return _answer(retried=actions.retry(self.app, found))

    def cancel(self, id: str, why: str) -> Answer:
        """Cancel a run or a job: at once where it waits; where it runs, its handler is told."""
        found, is_run = self.app.database.read(find_run_or_job, id)
        with self.app.acting(by=BY, why=why):
            if not is_run:
                return _answer(cancelled=bool(actions.cancel(self.app, [found])))
            try:
                self.app.run(found).cancel()
            except CancelConflict:
                return _answer(cancelled=False)
            return _answer(cancelled=True)

    def revive(self, id: str, why: str) -> Answer:
        """Go on with a halted or failed run: a new run keeps what is finished and does the rest again."""
        with self.app.acting(by=BY, why=why):
            return _answer(run=self._named(id).revive().id)

    def fork(self, id: str, step: str, why: str) -> Answer:
        """Fork a run that has ended: a new run does this step and what depends on it again, and keeps the rest."""
        with self.app.acting(by=BY, why=why):
            return _answer(run=self._named(id).fork(step).id)

    def pause(self, id: str, why: str) -> Answer:
        """Start no further step of a run until it is resumed."""
        with self.app.acting(by=BY, why=why):
            return _answer(paused=self._named(id).pause())

    def resume(self, id: str, why: str) -> Answer:
        """Let a paused run go on."""
        with self.app.acting(by=BY, why=why):
            return _answer(resumed=self._named(id).resume())

    def signal(self, id: str, name: str, why: str, value: Any = None) -> Answer:
        """Give a signal that a step of a run waits for."""
        with self.app.acting(by=BY, why=why):
            return _answer(given=self._named(id).signal(name, value))

    def _named(self, id: str) -> Run:
        return self.app.run(self.app.database.read(find_run, id))

    @property
    def tools(self) -> list[Callable[..., Answer]]:
        return [self.retry, self.cancel, self.revive, self.fork, self.pause, self.resume, self.signal]


def assistant_server(app: Penstock, *, acts: bool, of_app: bool = True) -> MCPServer[Any]:
    """A server with the tools for this app; `acts`: also those that change something. `of_app`: see `ReadingTools`."""
    version.ensure(app.database, upgrade=False)
    server: MCPServer[Any] = sdk.MCPServer("penstock", instructions=INSTRUCTIONS, log_level="WARNING")
    for tool in ReadingTools(app, of_app).tools:
        _add(server, tool, types.ToolAnnotations(read_only_hint=True))
    for tool in ActingTools(app).tools if acts else ():
        _add(server, tool, types.ToolAnnotations(read_only_hint=False, destructive_hint=True))
    return server


def _add(server: MCPServer[Any], tool: Callable[..., Answer], annotations: ToolAnnotations) -> None:
    """Have a tool run in a thread: it waits for the database, and the server has other requests."""

    @wraps(tool)
    async def threaded(*args: Any, **named: Any) -> Answer:
        try:
            return await in_thread(tool, *args, **named)
        except PenstockError as error:
            raise refusals.ToolError(str(error)) from error

    server.add_tool(threaded, annotations=annotations)


def _answer(**values: object) -> Answer:
    told = {name: plain(value, name) for name, value in values.items()}
    return cast(Answer, json.loads(json.dumps(told, default=str)))


def _limit(limit: int) -> int:
    return max(1, min(limit, MOST))


def _one_of(word: str, words: list[Any]) -> str:
    if word not in words:
        raise PenstockError(f"there is no status {word!r}{nearest(word, words)}")
    return word
