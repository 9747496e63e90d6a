"""The app: where tasks, pipelines and reconcilers are declared, and the door to everything about them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from penstock.database import foreign
from penstock.database.ears import ear_for
from penstock.database.engine import Database
from penstock.database.transaction import Transaction
from penstock.doors import Doors
from penstock.errors import ConfigurationError, DefinitionError
from penstock.job import Job
from penstock.lazy import Lazy
from penstock.operate.operating import Operating
from penstock.options import declared_options
from penstock.pipelines.declaring import Pipelines
from penstock.queue import audit
from penstock.queue import enqueue as queue_enqueue
from penstock.queue.claim import Foresee
from penstock.queue.jobs import Follow, NewJob, lanes_of
from penstock.queue.wakeups import CHORES, ENDED, READY, Wakeups, ready
from penstock.runtime.executors.spawning import refuse_while_imported
from penstock.runtime.job_source import Hydrate
from penstock.runtime.options import WorkerOptions, details
from penstock.runtime.relay import Relay
from penstock.runtime.worker import Worker
from penstock.schema import catalog, version
from penstock.settings import Settings
from penstock.task import Task
from penstock.telemetry.events import JobsEnqueued, Stream
from penstock.values import checks, limits
from penstock.values.acting import said
from penstock.values.cached import cached_property
from penstock.values.checks import checked
from penstock.values.forks import forget_after_fork
from penstock.values.ids import checked_id
from penstock.values.units import QueueLimit, read_queues

if TYPE_CHECKING:
    from sqlalchemy import MetaData
    from sqlalchemy import util as greenlets

    from penstock.reconcile import definition, target, visits, writer
    from penstock.schema import tables
else:
    greenlets, tables = Lazy("sqlalchemy.util"), Lazy("penstock.schema.tables")
    definition, target = Lazy("penstock.reconcile.definition"), Lazy("penstock.reconcile.target")
    visits, writer = Lazy("penstock.reconcile.visits"), Lazy("penstock.reconcile.writer")

P = ParamSpec("P")
R = TypeVar("R")


class Penstock(Pipelines, Operating):
    """Durable tasks, pipelines and reconcilers on one database."""

    def __init__(self, database_url: str | None = None, **settings: Any) -> None:
        self.settings = Settings.load(database_url=database_url, **settings)
        self.database = Database(self.settings)
        catalog.describe(self.database)
        self.events = Stream()
        self.wakeups = Wakeups(self.database)
        self.database.call_housekeeping = self.wakeups.call_housekeeping
        self.doors = Doors(max(4, self.settings.pool_size))
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.limited: dict[str, limits.TaskLimits] = {}
        self.reconcilers: dict[str, definition.Reconciler] = {}
        self._open_pipelines()
        self.chores: tuple[Callable[[], bool], ...] = (self.engine.chores.turn,)
        self.hydrate: Hydrate | None = self.engine.hydrate
        self.foresee: Foresee | None = self.engine.foresee
        self.follow: Follow = self.engine.follow
        self.inline: Callable[[Sequence[NewJob]], None] | None = None
        self._prepared = False
        self._lock = threading.Lock()
        self._relay: Relay | None = None
        forget_after_fork(self)

    def forget(self) -> None:
        """In a forked child: the lock may be held, and the relay listens, in a thread that is the parent's."""
        self._lock = threading.Lock()
        # Held, and never used: with the last reference to it, the parent's connection would be closed.
        self._inherited, self._relay = self._relay, None

    @cached_property
    def metadata(self) -> MetaData:
        """Penstock's own tables, as SQLAlchemy knows them."""
        return tables.define(self.database.prefix, self.database.schema, self.database.dialect.name)

    # declaring

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, /, **options: Any) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Declare a task: `@app.task` or `@app.task(queue="mail", retries=5)`."""

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            name = str(options.get("name") or getattr(function, "__qualname__", function))
            task = Task(self, function, declared_options(name, options))
            known = self.tasks.get(task.name)
            if known is not None and not task.may_replace(known):
                raise DefinitionError(
                    f"there are two tasks named {task.name!r}; give one of them another name="
                )
            limits.declare(self.limited, task.name, task.limits)
            self.tasks[task.name] = task
            return task

        return declare if function is None else declare(function)

    def reconciler(
        self, model: Any, /, **options: Any
    ) -> Callable[[Callable[..., Any]], definition.Reconciler]:
        """Declare a reconciler: `@app.reconciler(Volume, where=Volume.status == "submitted", workers=20)`."""
        self.database.go_through_sqlalchemy()
        return definition.declaration(self.reconcilers, model, options)

    @property
    def task_names(self) -> list[str]:
        """What this process can run: tasks, and pipelines as steps of others."""
        return [*self.tasks, *self.pipelines]

    def find_task(self, name: str) -> Task[Any, Any] | None:
        return self.tasks.get(name)

    def also_runs(self, task: Task[Any, Any]) -> None:
        """A task under a second name, unless that is somebody's."""
        self.tasks.setdefault(task.name, task)

    # enqueuing

    def submit(self, jobs: Sequence[NewJob], connection: object | None) -> list[str]:
        """Write jobs, in a transaction of our own or in the caller's."""
        if not jobs:
            return []
        if connection is not None:
            return self._submit_within(foreign.recognize(connection), jobs)
        self.prepare()
        try:
            alone = len(jobs) == 1 and jobs[0].key is None and said() is None
            write = self.database.in_statement if alone else self.database.in_transaction
            ids = write(self._write, jobs)
        except Exception as error:
            # An earlier try was committed, only its answer was lost: the jobs are there.
            if not self.database.dialect.is_duplicate(error) or not self._are_written(jobs):
                raise
            ids = [job.id for job in jobs]
            self.wakeups.tell_after_all([READY, CHORES])
        self._tell(jobs)
        return ids

    def _write(self, tx: Transaction, jobs: Sequence[NewJob]) -> list[str]:
        self.wakeups.tell_with(tx, [ready(queue, tier) for queue, tier in lanes_of(jobs)])
        ids = queue_enqueue.enqueue(tx, jobs)
        audit.of_enqueued(tx, jobs, ids)
        return ids

    def _are_written(self, jobs: Sequence[NewJob]) -> bool:
        return self.database.read(queue_enqueue.are_written, [job.id for job in jobs])

    async def submit_async(self, jobs: Sequence[NewJob], connection: object | None) -> list[str]:
        if connection is None:
            door = self.doors.run if self.inline is None else self.doors.run_apart
            return await door(self.submit, jobs, None)
        theirs = foreign.recognize(connection)
        if theirs.is_async:
            return await greenlets.greenlet_spawn(self._write_within, theirs, jobs)
        return self._write_within(theirs, jobs)

    def _submit_within(self, theirs: foreign.Foreign, jobs: Sequence[NewJob]) -> list[str]:
        if theirs.is_async:
            raise ConfigurationError("this connection is an async one: use enqueue_async (or trigger_async)")
        return self._write_within(theirs, jobs)

    def _write_within(self, theirs: foreign.Foreign, jobs: Sequence[NewJob]) -> list[str]:
        tx = self.within(theirs)
        with theirs.kept_together():
            ids = queue_enqueue.enqueue(tx, jobs)
            audit.of_enqueued(tx, jobs, ids)
            for queue, tier in lanes_of(jobs):
                self.wakeups.tell_within(tx, ready(queue, tier))
            if tx.leaves_chores:
                self.wakeups.call_housekeeping_within(tx)
        return ids

    def within(self, theirs: foreign.Foreign) -> Transaction:
        """The caller's transaction as one of ours, with the schema in place."""
        tx = theirs.transaction(self.database)
        if not self._prepared and self.database.dialect.one_writer:
            version.ensure_within(self.database, tx, upgrade=self.settings.auto_migrate)
        else:
            self.prepare()
        return tx

    def _tell(self, jobs: Sequence[NewJob]) -> None:
        if self.events.wants(JobsEnqueued):
            self.events.emit(JobsEnqueued(jobs[0].task, jobs[0].queue, len(jobs)))
        if self.inline is not None:
            self.inline(jobs)

    def job(self, id: str) -> Job[Any]:
        """The job with this id."""
        return Job(self, checked_id(id))

    # rows

    def lock(self, model: Any, id: Any, timeout: float = 5.0) -> writer.RowLock:
        """Take a turn at a row, for API code: `with app.lock(Volume, id) as connection:`, or `async with`."""
        return writer.RowLock(self, target.target_of(model), id, checked("timeout", timeout, checks.seconds))

    def hint(self, model: Any, /, *ids: Any) -> None:
        """After a commit: there is something to look at in this table. With ids, at these rows in any case."""
        visits.hint(self, model, ids)

    async def hint_async(self, model: Any, /, *ids: Any) -> None:
        await visits.hint_async(self, model, ids)

    # running

    def worker(
        self,
        *,
        queues: str | Iterable[str | QueueLimit] | None = None,
        concurrency: int | None = None,
        role: str | None = None,
        supervisor_id: str | None = None,
        reconcilers: Sequence[str] | None = None,
    ) -> Worker:
        """A worker to embed: `async with app.worker(): ...`."""
        refuse_while_imported()
        wanted = checked("queues", queues, read_queues) or self.settings.queues
        changed = self.settings.with_changes(concurrency=concurrency, role=role)
        told = details(wanted, changed.concurrency)
        options = WorkerOptions(
            wanted, changed.concurrency, changed.role, supervisor_id, told, reconcilers=reconcilers
        )
        return Worker(self, options)

    def prepare(self) -> None:
        """Bring the schema up to date, once."""
        if self._prepared:
            return
        with self._lock:
            if not self._prepared:
                version.ensure(self.database, upgrade=self.settings.auto_migrate)
                self._prepared = True

    def migrate(self) -> int:
        """Upgrade the schema now, whatever `auto_migrate` says; how many migrations were applied."""
        applied = version.ensure(self.database, upgrade=True)
        self._prepared = True
        return applied

    async def migrate_async(self) -> int:
        return await self.doors.run(self.migrate)

    def listen_for_results(self) -> None:
        """From now on, hear of results that other processes settle."""
        self.prepare()
        with self._lock:
            if self._relay is None and self.database.dialect.pushes_wakeups and self.settings.listen:
                ear = ear_for(self.database, self.wakeups.channel_of(ENDED))
                self._relay = Relay(ear, self.wakeups, self.events)
                self._relay.start()

    def close(self) -> None:
        """Close all connections. What is under way ends first; who waits hears of it; the next call opens it again."""
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.end()
        self.doors.close()
        self.wakeups.relay(ENDED)
        self.database.close()
        if self.database.dialect.in_memory:
            self._prepared = False  # the tables are gone with it

    async def close_async(self) -> None:
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Penstock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Penstock on {self.settings.shown_url}>"
