"""The keyword arguments of the public API by name and type, so that a type checker finds a wrong one.

For type checkers only: no module imports it when it runs. What is given is checked by name and value where it is read.
`tests/pure/values/test_option_types.py` compares the names with those that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from penstock.values.limits import Limit
from penstock.values.parse import QueueLimit
from penstock.values.retry import Retry

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

Seconds = float | timedelta
Duration = float | str | timedelta
"""Also as a text: "30s", "14d"."""
Size = int | str
"""In bytes, or as a text: "512 KiB"."""
Labels = str | Sequence[str] | set[str] | frozenset[str] | None
Strategy = Literal["halt", "continue", "ignore"]


class JobKeywords(TypedDict, total=False):
    """Options of a job that a decorator, an enqueue and a step share."""

    queue: str | None
    priority: int | None
    delay: Seconds | None
    key: str | None
    retries: int | Retry | None
    max_crashes: int | None
    timeout: Seconds | None
    executor: Literal["async", "thread", "process"] | None


class EnqueueKeywords(JobKeywords, total=False):
    """Options of a job, of a decorator or of one enqueue."""

    name: str | None
    at: datetime | None
    connection: object
    labels: Labels
    unique: Literal["forever", "while_pending", "while_waiting"] | None
    unique_for: Seconds | None
    on_conflict: Literal["return", "replace"] | None
    expires: Seconds | datetime | None
    on_success: Callable[..., Any] | Sequence[Callable[..., Any]] | None


class TaskKeywords(EnqueueKeywords, total=False):
    """Keyword arguments of `@app.task(...)`."""

    on_failure: Callable[..., Any] | Sequence[Callable[..., Any]] | None
    aliases: str | Sequence[str]
    limits: Limit | Sequence[object]
    middleware: Sequence[Callable[..., Any]]


class TaskOptionKeywords(EnqueueKeywords, total=False):
    """Keyword arguments of `task.options(...)`, for an enqueue or a step."""

    after: Any
    max_fanout: int | None
    on_failure: Strategy | Callable[..., Any] | Sequence[Callable[..., Any]] | None
    optional: bool


class PipelineOptionKeywords(TypedDict, total=False):
    """Keyword arguments of `pipeline.options(...)`, for a run, or for a child run as a step."""

    key: str | None
    delay: Seconds | None
    at: datetime | None
    connection: object
    labels: Labels
    after: Any
    queue: str | None
    priority: int | None
    timeout: Seconds | None
    on_failure: Strategy | Callable[..., Any] | None
    optional: bool
    max_fanout: int | None


class FlowKeywords(TypedDict, total=False):
    """Keyword arguments of `app.flow(name, ...)`."""

    on_failure: Any
    on_complete: Any
    on_success: Any
    on_halt: Any
    max_fanout: int | None
    max_steps: int | None
    max_running: int | None
    deadline: Seconds | None
    halt_running: Literal["finish", "cancel"] | None
    description: str | None


class PipelineKeywords(FlowKeywords, total=False):
    """Keyword arguments of `@app.pipeline(...)`."""

    name: str | None


class ReconcilerKeywords(TypedDict, total=False):
    """Keyword arguments of `@app.reconciler(Model, ...)`."""

    name: str | None
    where: ColumnElement[bool] | None
    locks: Sequence[object]
    on_lost: Callable[..., Any] | None
    index: bool
    middleware: Sequence[Callable[..., Any]]
    workers: int
    executor: Literal["async", "thread", "process"] | None
    every: Duration | Mapping[Any, Duration] | Callable[[Any], Duration]
    by: str | None
    lease: Duration
    timeout: Duration | None
    backoff: Retry
    max_attempts: int | None
    max_crashes: int | None
    on_exhausted: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] | None
    prefetch: int | None
    overwrite: bool | str | Iterable[str]


class ScheduledKeywords(JobKeywords, total=False):
    """Options of a schedule that its declaration and its later changes share."""

    every: Seconds | None
    tz: str | tzinfo | None
    missed: Literal["skip", "latest", "all"] | None
    window: Seconds | None
    limit: int | None
    overlap: Literal["skip", "queue", "allow", "cancel"] | None
    jitter: Seconds | None
    start: datetime | None
    end: datetime | None
    args: Sequence[Any] | None
    kwargs: Mapping[str, Any] | None
    labels: Labels
    expires: Seconds | datetime | None
    on_success: Callable[..., Any] | Sequence[Callable[..., Any]] | None
    on_failure: Callable[..., Any] | Sequence[Callable[..., Any]] | None


class ScheduleChanges(ScheduledKeywords, total=False):
    """Keyword arguments of `schedule.update(...)`."""

    cron: str | None


class ScheduleKeywords(ScheduledKeywords, total=False):
    """Keyword arguments of `task.schedule(cron, ...)` and `pipeline.schedule(cron, ...)`."""

    name: str | None
    paused: bool


class NewScheduleKeywords(ScheduleKeywords, total=False):
    """Keyword arguments of `app.schedules.create(target, cron, ...)`."""

    connection: object
    redefine: bool


class SettingKeywords(TypedDict, total=False):
    """Keyword arguments of `Penstock(url, ...)`. None leaves a setting to the environment and its default."""

    schema: str | None
    table_prefix: str | None
    auto_migrate: bool | None
    payload_limit: Size | None
    expand_limit: Size | None
    max_fanout: int | None
    inline_fanout: int | None
    retention: Duration | None
    unknown_task_after: Duration | None
    audit_retention: Duration | None
    tick_retention: Duration | None
    schedule_grace: Duration | None
    secret: str | Sequence[str] | None
    queues: str | Iterable[str | QueueLimit] | None
    role: Literal["all", "worker", "advancer", "reconciler"] | None
    processes: int | None
    concurrency: int | None
    executor_processes: int | None
    batch: int | None
    unrecorded: int | None
    heartbeat_interval: Duration | None
    reap_after: Duration | None
    poll_interval: Duration | None
    sweep_interval: Duration | None
    housekeeping_interval: Duration | None
    result_poll_interval: Duration | None
    shutdown_timeout: Duration | None
    listen: bool | None
    notify: bool | None
    wakeup_interval: Duration | None
    listen_url: str | None
    pooler: Literal["none", "transaction", "session"] | None
    profile: Literal["standard", "distributed"] | None
    pool_size: int | None
    connect_timeout: Duration | None
    statement_timeout: Duration | None
    lock_timeout: Duration | None
    dashboard_user: str | None
    dashboard_password: str | None
    dashboard_timeout: Duration | None
    fast_path: bool | None
    metrics_port: int | None
    metrics_host: str | None
    log_level: Literal["debug", "info", "warning", "error", "critical"] | None
    log_format: Literal["text", "json"] | None
    log_tracebacks: Literal["debug", "info", "warning", "error", "critical", "never"] | None
    crash_at: str | None
