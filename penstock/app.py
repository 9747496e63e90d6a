"""The app: declares tasks, pipelines and reconcilers, and gives access to their jobs, runs and rows."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Unpack, overload

from typing_extensions import TypeVar

from penstock import middleware as around
from penstock.async_bridge import AsyncBridge, in_thread
from penstock.database.database import Database
from penstock.database.listeners import listener_for
from penstock.database.transaction import Transaction
from penstock.database.user import connections
from penstock.errors import ConfigurationError, DefinitionError
from penstock.job import Job
from penstock.operate.app_methods import Operating
from penstock.pipelines.registry import Pipelines
from penstock.queue import audit
from penstock.queue import enqueue as queue_enqueue
from penstock.queue.claim import PrefetchRuns
from penstock.queue.jobs import Follow, NewJob, RunLookup, lanes_of
from penstock.queue.wakeup_targets import needs_of
from penstock.queue.wakeups import CHORES, ENDED, READY, Wakeups, ready
from penstock.runtime.executors.process_executor import refuse_while_imported
from penstock.runtime.pump.job_source import PrepareClaimedSteps
from penstock.runtime.pump.waker import Relay
from penstock.runtime.worker import Worker, WorkerOptions, details
from penstock.schema import catalog, version
from penstock.settings import Settings
from penstock.task import Task
from penstock.task_options import declared_options
from penstock.telemetry.events import JobsEnqueued, Stream
from penstock.values import limits, parse
from penstock.values.actor import named_actor
from penstock.values.fork_safety import cached_property, register_reset_after_fork
from penstock.values.ids import checked_id
from penstock.values.lazy_import import Lazy
from penstock.values.parse import QueueLimit, checked, read_queues

if TYPE_CHECKING:
    from sqlalchemy import MetaData, Table
    from sqlalchemy import util as greenlets

    from penstock.reconcile import hint, row_lock, table
    from penstock.reconcile import reconciler as definition
    from penstock.reconcile.item import Item
    from penstock.schedules import declare, fire
    from penstock.schedules import schedule as scheduling
    from penstock.schedules.definition import ScheduleDefinition
    from penstock.schedules.schedule import Schedule, Schedules
    from penstock.schema import tables
    from penstock.values.option_types import ReconcilerKeywords, SettingKeywords, TaskKeywords
else:
    declare, fire = Lazy("penstock.schedules.declare"), Lazy("penstock.schedules.fire")
    scheduling = Lazy("penstock.schedules.schedule")
    greenlets, tables = Lazy("sqlalchemy.util"), Lazy("penstock.schema.tables")
    definition, table = Lazy("penstock.reconcile.reconciler"), Lazy("penstock.reconcile.table")
    hint, row_lock = Lazy("penstock.reconcile.hint"), Lazy("penstock.reconcile.row_lock")

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", default=Any)
Around = TypeVar("Around", bound=around.Middleware)
AroundEnqueue = TypeVar("AroundEnqueue", bound=around.EnqueueMiddleware)


class Penstock(Pipelines, Operating):
    """Durable tasks, pipelines and reconcilers on one database."""

    def __init__(self, database_url: str | None = None, **settings: Unpack[SettingKeywords]) -> None:
        self.settings = Settings.load(database_url=database_url, **settings)
        self.database = Database(self.settings)
        catalog.describe(self.database)
        self.events = Stream()
        self.wakeups = Wakeups(self.database)
        self.database.call_housekeeping = self.wakeups.call_housekeeping
        self.bridge = AsyncBridge(max(4, self.settings.pool_size))
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.aliases: dict[str, Task[Any, Any]] = {}
        """Tasks by the names that they had before."""
        self.limited: dict[str, limits.TaskLimits] = {}
        self.reconcilers: dict[str, definition.Reconciler] = {}
        self.middlewares: tuple[around.Middleware, ...] = ()
        self.enqueue_middlewares: tuple[around.EnqueueMiddleware, ...] = ()
        self.tick_middlewares: tuple[around.EnqueueMiddleware, ...] = ()
        """Middleware around runs that a schedule starts in a worker; the other lists are for callers."""
        self._open_pipelines()
        self.declared: dict[str, ScheduleDefinition] = {}
        self._paused: set[str] = set()
        self._declare_at = 0.0
        self.chores: tuple[Callable[[], bool], ...] = (self._declare_again, self.engine.chores.turn)
        self.prepare_claimed_steps: PrepareClaimedSteps | None = self.engine.prepare_claimed_steps
        self.prefetch_runs: PrefetchRuns | None = self.engine.prefetch_runs
        self.run_lookup: RunLookup | None = self.engine.run_lookup
        self.follow: Follow = self.engine.follow
        self.inline: Callable[[Sequence[NewJob]], None] | None = None
        self.worker_loops: list[asyncio.AbstractEventLoop] = []
        """The event loops on which workers of this app run now."""
        self.closers: list[Callable[[], None]] = []
        """Called first when the app is closed."""
        self._prepared = False
        self._lock = threading.Lock()
        self._relay: Relay | None = None
        register_reset_after_fork(self)

    def reset_after_fork(self) -> None:
        """In a forked child: replace the lock and the relay, which may be in use by a thread of the parent."""
        self._lock = threading.Lock()
        # Kept and never used: without a reference to it, Python would close the parent's connection.
        self._inherited, self._relay = self._relay, None

    @cached_property
    def metadata(self) -> MetaData:
        """Penstock's own tables, as SQLAlchemy knows them."""
        return tables.define(self.database.prefix, self.database.schema, self.database.dialect.name)

    # declaring

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, /, **options: Unpack[TaskKeywords]) -> Callable[[Callable[P, R]], Task[P, R]]: ...

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
            self._declare_aliases(task)
            return task

        return declare if function is None else declare(function)

    def _declare_aliases(self, task: Task[Any, Any]) -> None:
        """Register a task under its old names too: workers take the jobs that were enqueued under them."""
        for alias in task.defaults.aliases:
            known = self.tasks.get(alias) or self.aliases.get(alias)
            if known is not None and known.name != task.name:
                raise DefinitionError(f"{task.name}: its alias {alias!r} is a name of task {known.name!r}")
            if task.limits is not None:
                self.limited[alias] = task.limits
            self.aliases[alias] = task

    def reconciler(
        self, model: type[M] | Table, /, **options: Unpack[ReconcilerKeywords]
    ) -> Callable[[Callable[[Item[M]], Any]], definition.Reconciler]:
        """Declare a reconciler: `@app.reconciler(Volume, where=Volume.status == "submitted", workers=20)`."""
        self.database.connections.go_through_sqlalchemy()
        return definition.declaration(self.reconcilers, model, options, lambda: self.middlewares)

    def middleware(self, function: Around, /) -> Around:
        """Declare code around every handler: `@app.middleware`, a generator function with one `yield`.

        The first that is declared is the outermost. See `penstock.middleware`.
        """
        self.middlewares = (*self.middlewares, around.checked_middleware(function))
        return function

    def enqueue_middleware(self, function: AroundEnqueue, /) -> AroundEnqueue:
        """Declare code around every enqueue and trigger; it may store headers with what is written."""
        self.enqueue_middlewares = (*self.enqueue_middlewares, around.checked_enqueue_middleware(function))
        return function

    def declare_schedule(self, target: Any, cron: str | None, given: dict[str, Any]) -> Schedule:
        """Register a schedule that `task.schedule(...)` declares; workers write it to the database."""
        one, paused = scheduling.declared(self, target, cron, given)
        self.declared[one.name] = one
        self._paused.update([one.name] if paused else [])
        return scheduling.Schedule(self, one.name)

    @property
    def task_names(self) -> list[str]:
        """The names of everything this process can run: tasks, and pipelines as steps of others."""
        return [*self.tasks, *self.aliases, *self.pipelines]

    def find_task(self, name: str) -> Task[Any, Any] | None:
        return self.tasks.get(name) or self.aliases.get(name)

    def also_runs(self, task: Task[Any, Any]) -> None:
        """Register a task under a second name, unless another task has that name."""
        self.tasks.setdefault(task.name, task)

    # enqueuing

    def submit(self, jobs: Sequence[NewJob], connection: object | None) -> list[str]:
        """Write jobs, in a transaction of our own or in the caller's."""
        if not jobs:
            return []
        connection = self.connection_for(connection)
        if connection is not None:
            return self._submit_within(connections.recognize(connection), jobs)
        self.prepare()
        try:
            alone = len(jobs) == 1 and jobs[0].is_plain and named_actor() is None
            write = self.database.in_statement if alone else self.database.in_transaction
            ids = write(self._write, jobs)
        except Exception as error:
            # An earlier try was committed, only its answer was lost: the jobs are there.
            if not self.database.dialect.is_duplicate(error) or not self._are_written(jobs):
                raise
            ids = [job.id for job in jobs]
            self.wakeups.notify_after_lost_commit([READY, CHORES])
        self._tell(jobs)
        return ids

    def _write(self, tx: Transaction, jobs: Sequence[NewJob]) -> list[str]:
        self.wakeups.notify_on_commit(
            tx, [ready(queue, tier) for queue, tier in lanes_of(jobs)], needs_of(jobs)
        )
        ids = queue_enqueue.enqueue(tx, jobs)
        if named_actor() is not None:
            audit.of_enqueued(tx, jobs, ids)
        return ids

    def _are_written(self, jobs: Sequence[NewJob]) -> bool:
        return self.database.read(queue_enqueue.are_written, [job.id for job in jobs])

    async def submit_async(self, jobs: Sequence[NewJob], connection: object | None) -> list[str]:
        if connection is None:
            door = self.bridge.run if self.inline is None else self.bridge.run_apart
            return await door(self.submit, jobs, None)
        theirs = connections.recognize(connection)
        if theirs.is_async:
            return await greenlets.greenlet_spawn(self._write_within, theirs, jobs)
        return self._write_within(theirs, jobs)

    def _submit_within(self, theirs: connections.CallerConnection, jobs: Sequence[NewJob]) -> list[str]:
        if theirs.is_async:
            raise ConfigurationError("this connection is an async one: use enqueue_async (or trigger_async)")
        return self._write_within(theirs, jobs)

    def _write_within(self, theirs: connections.CallerConnection, jobs: Sequence[NewJob]) -> list[str]:
        tx = self.within(theirs)
        with theirs.kept_together():
            ids = queue_enqueue.enqueue(tx, jobs)
            audit.of_enqueued(tx, jobs, ids)
            for queue, tier in lanes_of(jobs):
                self.wakeups.notify_in_user_transaction(tx, ready(queue, tier), needs_of(jobs))
            if tx.leaves_chores:
                self.wakeups.call_housekeeping_within(tx)
        self._count(jobs)
        return ids

    def connection_for(self, given: object | None) -> object | None:
        """The caller's connection to write on: the one that was passed.

        Subclasses for frameworks find the thread's open transaction.
        """
        return given

    def within(self, theirs: connections.CallerConnection) -> Transaction:
        """The caller's transaction as one of ours, with the schema in place."""
        tx = theirs.transaction(self.database)
        if not self._prepared and self.database.dialect.one_writer:
            version.ensure_within(self.database, tx, upgrade=self.settings.auto_migrate)
        else:
            self.prepare()
        return tx

    def _count(self, jobs: Sequence[NewJob]) -> None:
        if self.events.wants(JobsEnqueued):
            self.events.emit(JobsEnqueued(jobs[0].task, jobs[0].queue, len(jobs)))

    def _tell(self, jobs: Sequence[NewJob]) -> None:
        self._count(jobs)
        if self.inline is not None:
            self.inline(jobs)

    def job(self, id: str) -> Job[Any]:
        """The job with this id."""
        return Job(self, checked_id(id))

    # schedules

    @property
    def schedules(self) -> Schedules:
        """The schedules: `app.schedules(prefix="tenant:", limit=100)`, `app.schedules.create(task, "@daily")`."""
        return scheduling.Schedules(self)

    def schedule(self, name: str) -> Schedule:
        """The schedule with this name."""
        return scheduling.Schedule(self, name)

    async def schedule_async(self, name: str) -> Schedule:
        return self.schedule(name)

    def declare_schedules(self) -> None:
        """Write the schedules that the code declares to the database: when a worker starts, and again from time to
        time."""
        if self.declared:
            self._declare_at = time.monotonic() + declare.AGAIN
            declare.declare_all(self, self.declared.values(), frozenset(self._paused))

    def _declare_again(self) -> bool:
        if self.declared and time.monotonic() >= self._declare_at:
            self.declare_schedules()
        return False

    def fire_ticks(self, waiting: bool = False) -> bool:
        """Fire some of the ticks that are due; True if there were any."""
        return self._firing.turn(waiting=waiting)

    @cached_property
    def _firing(self) -> fire.Firing:
        return fire.Firing(self)

    # rows

    def lock(self, model: Any, id: Any, timeout: float = 5.0) -> row_lock.RowLock:
        """Lock a row of a reconciled table, for API code: `with app.lock(Volume, id) as connection:`, or `async
        with`."""
        return row_lock.RowLock(self, table.target_of(model), id, checked("timeout", timeout, parse.seconds))

    def hint(self, model: Any, /, *ids: Any) -> None:
        """After a commit: tell reconcilers to look at this table. With ids, these rows are visited in any case."""
        hint.hint(self, model, ids)

    async def hint_async(self, model: Any, /, *ids: Any) -> None:
        await hint.hint_async(self, model, ids)

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

    @classmethod
    def set_up_process(cls) -> None:
        """Called in a new handler process before it imports a task's module; frameworks are set up here."""

    def prepare(self) -> None:
        """Bring the schema up to date, once."""
        if self._prepared:
            return
        with self._lock:
            if not self._prepared:
                version.ensure(self.database, upgrade=self.settings.auto_migrate)
                self.wakeups.read_targets()
                self._prepared = True

    def migrate(self) -> int:
        """Upgrade the schema now, even if `auto_migrate` is off. Returns how many migrations were applied."""
        applied = version.ensure(self.database, upgrade=True)
        self.wakeups.read_targets()
        self._prepared = True
        return applied

    async def migrate_async(self) -> int:
        return await self.bridge.run(self.migrate)

    def listen_for_results(self) -> None:
        """From now on, listen for results that other processes settle."""
        self.prepare()
        with self._lock:
            if self._relay is None and self.database.dialect.pushes_wakeups and self.settings.listen:
                listener = listener_for(self.database, self.wakeups.channel_of(ENDED))
                self._relay = Relay(listener, self.wakeups, self.events)
                self._relay.start()

    def close(self) -> None:
        """Close all connections.

        Calls under way end first; callers that wait get `AppClosed`; the next call opens the app again.
        """
        for end in self.closers:
            end()
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.end()
        self.bridge.close()
        self.wakeups.relay(ENDED)
        self.wakeups.end_sender()
        self.database.close()
        if self.database.dialect.in_memory:
            self._prepared = False  # the tables are gone with it

    async def close_async(self) -> None:
        await in_thread(self.close)

    def __enter__(self) -> Penstock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Penstock on {self.settings.shown_url}>"
