"""Every setting, its default and its meaning. Frozen, checked once, passed down; nothing reads a global.

Sources, the first that speaks wins: an argument of `Penstock(...)`, the environment variable
`PENSTOCK_<NAME>`, the default here. A wrong name or value is refused, whichever source it came from.
Durations may be written "500ms", "30s", "5m", "14d"; sizes "512 KiB".
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import TypeVar

from penstock.errors import ConfigurationError
from penstock.values import parse
from penstock.values.parse import (
    URL_FORMS,
    QueueLimit,
    Reader,
    choice,
    flag,
    nearest,
    optional,
    read_queues,
    read_seconds,
    read_whole,
)
from penstock.values.secrets import hidden, without_secrets

PREFIX = "PENSTOCK_"
_DAY = 86_400.0
_WEEK = 7 * _DAY

# Variables with our prefix that are not settings: the command line's default app, those of the test suite,
# and those that Kubernetes sets in every pod for a service whose name begins with "penstock".
_NOT_OURS = re.compile(r"PENSTOCK_(APP|TEST_.*|(.*_)?SERVICE_HOST|(.*_)?SERVICE_PORT.*|(.*_)?PORT(_\d+_.*)?)")

T = TypeVar("T")


def _setting(default: T, meaning: str, read: Reader, *, secret: bool = False) -> T:
    return field(default=default, repr=not secret, metadata={"meaning": meaning, "read": read})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One value per setting. `Settings.load()` merges the sources; `Settings.meanings()` explains them."""

    database_url: str = _setting(
        "sqlite:///penstock.db", "The database that holds the work.", parse.database_url, secret=True
    )
    schema: str | None = _setting(
        None,
        "The schema for Penstock's tables; where there are no schemas, the beginning of their names.",
        optional(parse.identifier),
    )
    table_prefix: str = _setting("penstock_", "What every table's name begins with.", parse.identifier)
    auto_migrate: bool = _setting(True, "Create and upgrade the tables on first use.", flag)

    payload_limit: int = _setting(
        1024 * 1024, "Largest arguments or result, in bytes of JSON.", parse.size(1)
    )
    expand_limit: int = _setting(
        8 * 1024 * 1024,
        "Largest result that is expanded, in bytes of JSON: all its elements together.",
        parse.size(1),
    )
    max_fanout: int | None = _setting(
        None, "Most elements one expand may have; none: no limit.", optional(read_whole(1))
    )
    inline_fanout: int = _setting(
        1000, "Expands with more elements than this are written in chunks.", read_whole(1)
    )
    retention: float | None = _setting(
        14 * _DAY, "How long finished work is kept; none: for ever.", optional(read_seconds(0))
    )
    unknown_task_after: float | None = _setting(
        7 * _DAY,
        "How long ready work waits for a process that knows its task, before it fails; none: for ever.",
        optional(read_seconds(0)),
    )
    audit_retention: float | None = _setting(
        90 * _DAY, "How long the trail of what people did is kept; none: for ever.", optional(read_seconds(0))
    )

    tick_retention: float | None = _setting(
        90 * _DAY,
        "How long it is kept what became of each tick of a schedule; none: for ever.",
        optional(read_seconds(0)),
    )
    schedule_grace: float = _setting(
        600.0,
        "A schedule that was declared in code, and that no worker has declared for this long, does not fire any more.",
        read_seconds(1),
    )

    secret: tuple[str, ...] | None = _setting(
        None,
        "What resume tokens are signed with, at least 16 characters; several: the first signs, all are accepted.",
        optional(parse.secrets),
        secret=True,
    )

    queues: tuple[QueueLimit, ...] | None = _setting(
        None, 'Queues to work on, such as "mail:10,default"; none: all.', optional(read_queues)
    )
    role: str = _setting(
        "all",
        "What a worker does: all, worker, advancer or reconciler.",
        choice("all", "worker", "advancer", "reconciler"),
    )
    processes: int = _setting(
        1, "Worker processes under the supervisor; 0: none, all in one.", read_whole(0, 1024)
    )
    concurrency: int = _setting(100, "Most jobs one process runs at a time.", read_whole(1, 100_000))
    executor_processes: int | None = _setting(
        None,
        'Processes for tasks and reconcilers with executor="process"; none: one per CPU.',
        optional(read_whole(1, 1024)),
    )
    batch: int = _setting(
        500, "Most rows claimed, settled or reclaimed in one transaction.", read_whole(1, 10_000)
    )
    unrecorded: int = _setting(
        500,
        "Most jobs that have ended and are not on record yet, before another begins; of handlers that wait for "
        "something, as many more as run at a time. So many run again if the process dies.",
        read_whole(1, 100_000),
    )

    heartbeat_interval: float = _setting(
        5.0,
        "Time between two signs of life of a process; longer while it rests (PostgreSQL).",
        read_seconds(0.01),
    )
    reap_after: float = _setting(
        30.0,
        "A process that is silent for this long counts as dead, and its work is taken back.",
        read_seconds(0.02),
    )
    poll_interval: float | None = _setting(
        None,
        "Longest time an idle worker waits before it looks again; none: 1 s, and where others tell of what is new "
        "(PostgreSQL) 20 s, once it has had nothing to do for a while.",
        optional(read_seconds(0.001)),
    )
    sweep_interval: float = _setting(
        5.0,
        "Time between two claims that look at the whole queue, not only above the floor.",
        read_seconds(0.001),
    )
    housekeeping_interval: float | None = _setting(
        None,
        "Longest time between two rounds of promoting due work, reaping and repair; none: 5 s where others can tell "
        "of what is due soon (PostgreSQL), else 1 s.",
        optional(read_seconds(0.001)),
    )
    result_poll_interval: float = _setting(
        0.1, "Longest time between two looks for a result that is waited for.", read_seconds(0.001)
    )
    shutdown_timeout: float = _setting(
        25.0, "How long running work may go on after a stop signal before it is given back.", read_seconds(0)
    )

    listen: bool = _setting(True, "Hear of new work at once where the database can tell (PostgreSQL).", flag)
    notify: bool = _setting(True, "Tell others of new work where the database can (PostgreSQL).", flag)
    wakeup_interval: float = _setting(
        0.01, "Wake-ups to other processes are sent at most this often.", read_seconds(0)
    )
    listen_url: str | None = _setting(
        None,
        "A direct URL to listen on when database_url leads to a pooler.",
        optional(parse.database_url),
        secret=True,
    )
    pooler: str = _setting(
        "none",
        "What stands before the database: none, or PgBouncer and the like in their mode: transaction or session.",
        choice("none", "transaction", "session"),
    )

    profile: str = _setting(
        "standard",
        "What the database can be relied on for: standard, or distributed (PostgreSQL-compatible engines without "
        "NOTIFY, advisory locks or SKIP LOCKED).",
        choice("standard", "distributed"),
    )

    fast_path: bool = _setting(
        True,
        "Take the shorter ways where the database can: claim and settle by one statement, write what follows without "
        "waiting for the answer, hold the next step at once; off: always the general way, which is slower and does "
        "the same.",
        flag,
    )

    pool_size: int = _setting(5, "Most connections a process keeps open for callers.", read_whole(1, 1000))
    connect_timeout: float = _setting(
        10.0, "Longest time to wait for a connection.", read_seconds(0.1, _WEEK)
    )
    statement_timeout: float = _setting(
        30.0, "Longest time one of Penstock's statements may take.", read_seconds(0.1, _WEEK)
    )
    lock_timeout: float = _setting(
        10.0, "Longest time one of Penstock's statements waits for a lock.", read_seconds(0.1, _WEEK)
    )

    dashboard_user: str = _setting(
        "admin", "The user who signs in to the dashboard, if there is a password for it.", parse.read_text
    )
    dashboard_password: str | None = _setting(
        None,
        "The password of that user, at least 8 characters; none: the dashboard is closed unless it has a guard.",
        optional(parse.password),
        secret=True,
    )
    dashboard_timeout: float = _setting(
        3.0, "Longest time one statement of a page of the dashboard may take.", read_seconds(0.1, _WEEK)
    )

    log_level: str = _setting(
        "info",
        "The least severe events to log: debug, info, warning, error or critical.",
        choice("debug", "info", "warning", "error", "critical"),
    )
    log_format: str = _setting("text", "How log lines are written: text or json.", choice("text", "json"))
    metrics_port: int | None = _setting(
        None,
        "The port on which a worker serves metrics and probes; none: it serves nothing.",
        optional(read_whole(0, 65535)),
    )
    metrics_host: str = _setting(
        "0.0.0.0", "The address on which a worker serves metrics and probes.", parse.read_text
    )
    log_tracebacks: str = _setting(
        "warning",
        "The least severe log lines that have the traceback of their error with them; or never.",
        choice("debug", "info", "warning", "error", "critical", "never"),
    )
    crash_at: str | None = _setting(
        None, "For tests: the named point at which to kill this process.", optional(parse.read_text)
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = _read(setting, setting.name, getattr(self, setting.name))
            object.__setattr__(self, setting.name, value)
        self._check_together()

    @classmethod
    def load(cls, *, environ: Mapping[str, str] | None = None, **overrides: object) -> Settings:
        """Merge the sources. An override of None leaves the setting to the environment and the default."""
        known = {setting.name: setting for setting in fields(cls)}
        for name in overrides.keys() - known.keys():
            raise ConfigurationError(f"there is no setting {name!r}{nearest(name, known)}")
        values = _from_environment(known, os.environ if environ is None else environ)
        for name, value in overrides.items():
            if value is not None or _allows_none(known[name]):
                values[name] = value
        _fit_defaults(known, values)
        return cls(**values)  # type: ignore[arg-type]

    def with_changes(self, **changes: object) -> Settings:
        """These settings with some others, checked; None leaves one as it is."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Each setting's name and what it means, for help texts and documentation."""
        return {setting.name: setting.metadata["meaning"] for setting in fields(cls)}

    @property
    def backend(self) -> str:
        """The kind of database: "postgresql", "mysql" or "sqlite"."""
        return URL_FORMS[self.database_url.partition(":")[0].lower()]

    def hidden(self, text: str) -> str:
        """A text from elsewhere, such as a driver's error, with our secrets removed."""
        return hidden(text, self.database_url, self.listen_url)

    @property
    def shown_url(self) -> str:
        """The database URL without its password, for people."""
        return without_secrets(self.database_url)

    @property
    def listens(self) -> bool:
        """Whether wake-ups can be heard: never through a transaction pooler."""
        direct = self.pooler != "transaction" or bool(self.listen_url)
        return self.listen and self.backend == "postgresql" and self.profile == "standard" and direct

    def _check_together(self) -> None:
        if self.reap_after < 2 * self.heartbeat_interval:
            raise ConfigurationError(
                f"reap_after ({self.reap_after:g} s) must be at least twice heartbeat_interval "
                f"({self.heartbeat_interval:g} s), or live processes are taken for dead. "
                f"Raise reap_after to {2 * self.heartbeat_interval:g} or more."
            )
        if self.lock_timeout > self.statement_timeout:
            raise ConfigurationError(
                f"lock_timeout ({self.lock_timeout:g} s) must not be longer than statement_timeout "
                f"({self.statement_timeout:g} s): it would never be reached. Lower lock_timeout."
            )
        if self.listen_url and self.backend != "postgresql":
            raise ConfigurationError("listen_url is for PostgreSQL only: leave it out")
        if self.profile != "standard" and self.backend != "postgresql":
            raise ConfigurationError(
                f"profile={self.profile!r} is for engines that speak PostgreSQL's protocol: leave it out"
            )


def _fit_defaults(known: Mapping[str, Field[object]], values: dict[str, object]) -> None:
    """Fit a default to the value that was given for the setting it depends on."""
    for name, depends_on, times in (
        ("lock_timeout", "statement_timeout", 1),
        ("heartbeat_interval", "reap_after", 2),
    ):
        usual, said = known[name].default, values.get(depends_on)
        if name in values or said is None or not isinstance(usual, float):
            continue
        most = _read(known[depends_on], depends_on, said)
        if isinstance(most, float):
            values[name] = min(usual, most / times)


def _from_environment(known: Mapping[str, Field[object]], environ: Mapping[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for variable, written in environ.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in known:
            if written.strip():
                values[name] = _read(known[name], variable, written)
        elif not _NOT_OURS.fullmatch(variable):
            close = nearest(name, known, lambda setting: PREFIX + setting.upper())
            raise ConfigurationError(
                f"the environment variable {variable} is not a setting of Penstock{close}"
            )
    return values


def _read(setting: Field[object], called: str, value: object) -> object:
    read: Reader = setting.metadata["read"]
    try:
        return read(value)
    except (ValueError, TypeError) as error:
        shown = called if not setting.repr else f"{called}={value!r}"
        raise ConfigurationError(f"{shown}: {error}") from None


def _allows_none(setting: Field[object]) -> bool:
    return "None" in str(setting.type)
