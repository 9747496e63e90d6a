"""Collects the jobs and runs of ticks, and writes them together in one transaction."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from penstock.app_services import AppServices
from penstock.database.transaction import Transaction
from penstock.errors import CancelConflict, DefinitionError
from penstock.middleware import Publication, publishing_each
from penstock.pipelines.advance import run_rows
from penstock.pipelines.lifecycle import cancel, start
from penstock.pipelines.lifecycle.start import NewRun
from penstock.queue import control
from penstock.queue.enqueue import enqueue
from penstock.queue.jobs import SCHEDULE_HEADER, NewJob, lanes_of, with_headers
from penstock.queue.wakeups import ready
from penstock.schedules.definition import PIPELINE
from penstock.schedules.rows import ScheduleRow
from penstock.schedules.times import SECOND, instant_of
from penstock.values.ids import new_id
from penstock.values.parse import KEY_LENGTH
from penstock.values.typed_json.json_text import dumps, loads

CANCEL_GRACE = 10.0
"""Seconds of grace for a run that is cancelled for the next one."""
Written = Callable[[str], None]
"""Called with the id under which a job or run exists, which differs from its own if its key was taken."""


class Launch:
    """Collects the jobs and runs to be written with the ticks of one transaction."""

    def __init__(self, host: AppServices, tx: Transaction, *, is_callers: bool = False) -> None:
        self.host = host
        self.tx = tx
        self.is_callers = is_callers
        """True if a caller starts the job or run, not the clock."""
        self.jobs: list[tuple[NewJob, Written]] = []
        self.runs: list[tuple[NewRun, Written]] = []

    def add(
        self,
        row: ScheduleRow,
        nominal: int,
        written: Written,
        sent: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> str:
        """Add a job or run for a tick of this schedule; returns its id.

        `sent`: headers of the caller who asks for it.
        """
        options: Any = loads(row.defined.options)
        delay = float(options.get("delay") or 0.0)
        if row.defined.jitter:
            delay += random.uniform(0, row.defined.jitter / SECOND)
        key = _key(options.get("key"), nominal)
        if row.defined.kind == PIPELINE:
            run = self._run(row, options, nominal, delay, key)
            run = run._replace(id=id or new_id(), headers=_headers(row, options, sent))
            self.runs.append((run, written))
            return run.id
        job = _job(row, options, nominal, delay, key)._replace(id=id or new_id())
        (headed,) = with_headers([job], _headers(row, options, sent))
        self.jobs.append((headed, written))
        return headed.id

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Leave out the jobs and runs that were added in the block if it raises."""
        jobs, runs = len(self.jobs), len(self.runs)
        try:
            yield
        except BaseException:
            del self.jobs[jobs:], self.runs[runs:]
            raise

    def cancel(self, row: ScheduleRow, id: str) -> None:
        """Cancel the job or run of the tick before, if it has not ended."""
        if row.defined.kind != PIPELINE:
            control.cancel(self.tx, [id], self.host.follow, events=self.host.events)
            return
        try:
            cancel.begin_to_cancel(self.host.engine.engine_state, self.tx, id, CANCEL_GRACE)
        except CancelConflict:
            return
        self.tx.leave_chores()

    def write(self) -> None:
        """Write all jobs and runs."""
        jobs = sorted(self.jobs, key=lambda each: (each[0].task, each[0].queue, each[0].options or ""))
        news = [job for job, _ in jobs]
        if news:
            self.host.wakeups.notify_on_commit(self.tx, [ready(*lane) for lane in sorted(lanes_of(news))])
            for id, (_, written) in zip(enqueue(self.tx, news), jobs, strict=True):
                written(id)
        pipelines = sorted(self.runs, key=lambda each: each[0].definition.name)
        for _, group in groupby(pipelines, key=lambda each: each[0].definition.name):
            self._write_runs(list(group))
        if pipelines:
            self.host.engine.engine_state.tell_ready_with(self.tx)

    def _write_runs(self, group: list[tuple[NewRun, Written]]) -> None:
        with self._publishing([new for new, _ in group]) as news:
            ids = start.trigger_many(self.host.engine.engine_state, self.tx, news)
        for id, (_, written) in zip(ids, group, strict=True):
            written(id)

    @contextmanager
    def _publishing(self, news: list[NewRun]) -> Iterator[list[NewRun]]:
        """Write runs inside the block, with the headers that the middlewares around ticks have added.

        The run of a caller has had those of the middlewares around enqueues.
        """
        if not self.host.tick_middlewares or self.is_callers:
            yield news
            return
        publications = [Publication("run", new.definition.name, 1) for new in news]
        for publication, new in zip(publications, news, strict=True):
            publication.run_headers, publication.ids = new.headers or {}, [new.id]
        with publishing_each(self.host.tick_middlewares, publications):
            yield [
                new._replace(headers={**(new.headers or {}), **publication.headers})
                for publication, new in zip(publications, news, strict=True)
            ]

    def _run(self, row: ScheduleRow, options: Any, nominal: int, delay: float, key: str | None) -> NewRun:
        """The run of a tick, with this app's definition, or with the one stored with the schedule if the app has
        none."""
        pipeline = self.host.find_pipeline(row.defined.target)
        if pipeline is not None:
            definition = pipeline.runnable
        elif row.definition is not None:
            definition = run_rows.wiring_for(
                self.host.engine.engine_state, self.tx, row.definition
            ).definition
        else:
            raise DefinitionError(f"this app has no pipeline {row.defined.target!r}")
        labels = tuple(options.get("labels") or ())
        new = start.NewRun("", definition, row.defined.payload, key, delay, labels=labels)
        return new._replace(scheduled_for=nominal)


def _job(row: ScheduleRow, options: Any, nominal: int, delay: float, key: str | None) -> NewJob:
    stored = options.get("options")
    told = loads(stored) if stored else {}
    assert isinstance(told, dict)
    return NewJob(
        "",
        options.get("task") or row.defined.target,
        options["queue"],
        options["priority"],
        row.defined.payload,
        dumps({**told, "scheduled_for": nominal}),
        options["max_crashes"],
        delay,
        None,
        key,
        labels=tuple(options.get("labels") or ()),
    )


def _headers(row: ScheduleRow, options: Any, sent: Mapping[str, str] | None) -> dict[str, str]:
    """The headers: of the caller who made the schedule, the schedule's name, and of the caller who asks for this
    one."""
    return {**(sent or {}), **options.get("headers", {}), SCHEDULE_HEADER: row.defined.name}


def _key(given: str | None, nominal: int) -> str | None:
    """The key of one tick's job: with its nominal time, for each tick has a job of its own."""
    if given is None:
        return None
    when = instant_of(nominal).isoformat().replace("+00:00", "Z")
    return f"{given[: KEY_LENGTH - len(when) - 1]}@{when}"
