"""The doctor: looks for everything that can be wrong with an installation, and says what to do about each finding.

A check is a function of the patient that returns findings. The checks after the first two run only if there is a
database with a schema.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import MetaData, inspect

from penstock.database import diagnostics
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.errors import DatabaseUnavailable, PenstockError, SchemaOutdated
from penstock.operate import dead_letters
from penstock.operate.diagnosis import damage
from penstock.operate.processes import list_processes, unattended
from penstock.operate.reconcilers import lacks, look
from penstock.operate.schedules import ailing
from penstock.pipelines.advance.run_rows import FindPipeline, no_pipeline
from penstock.pipelines.advance.timers import REMIND_SIGNED
from penstock.pipelines.maintenance import repair
from penstock.queue import claim, tallies
from penstock.queue.rules import queue_controls
from penstock.reconcile.reconciler import Reconciler
from penstock.schema import version
from penstock.values.ids import FIRST_ID
from penstock.values.plain import counted

SKEW = 5.0
LAG = 60.0
SAMPLE = 1000
MOST_RUNS = 1000
MOST_NAMED = 20
MOST_LETTERS = 10_000
MIGRATE = "Run: penstock migrate"

CLOCK = "SELECT {now}"
ORPHANS = """
SELECT COUNT(*), MIN(c.token), MIN(c.job_ids) FROM {claims} c
WHERE NOT EXISTS (SELECT 1 FROM {processes} p WHERE p.id = c.process_id) AND c.claimed_at < {now} - :age
"""
OVERDUE = "SELECT MIN(due_at), {now} FROM {scheduled}"
OVERDUE_TIMERS = "SELECT kind, MIN(due_at), {now} FROM {timers} WHERE due_at <= {now} GROUP BY kind"
TASKS = """
SELECT task, COUNT(*) FROM (
  SELECT task FROM {availabilities} WHERE queue = :queue AND tier = :tier ORDER BY seq LIMIT :limit) head
GROUP BY task
"""


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. Findings that are not ok have advice."""

    check: str
    level: Level
    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The database and app that the checks look at. `tasks`: those that the app declares; `of_app`: true if there
    is an app, not only the URL of a database."""

    database: Database
    metadata: MetaData
    tasks: frozenset[str]
    reconcilers: tuple[Reconciler, ...] = ()
    of_app: bool = False
    declared: str = ""
    """How much the app declares, in words."""
    find_pipeline: FindPipeline = no_pipeline

    @classmethod
    def of(cls, app: Any, of_app: bool = True) -> CheckContext:
        """The patient of an app: its database, and what the app declares."""
        tasks, reconcilers = frozenset(app.task_names), tuple(app.reconcilers.values())
        declared = declared_by(app)
        return cls(app.database, app.metadata, tasks, reconcilers, of_app, declared, app.find_pipeline)


def declared_by(app: Any) -> str:
    """How many tasks and pipelines an app declares, in words."""
    return f"{counted(len(app.tasks), 'task')}, {counted(len(app.pipelines), 'pipeline')}"


Check = Callable[[CheckContext], Iterable[Finding]]


def examine(patient: CheckContext) -> list[Finding]:
    """Run all checks. Without a database or a schema, only the first checks run."""
    findings: list[Finding] = []
    for check in FIRST_CHECKS:
        findings += check(patient)
        if findings[-1].level is Level.PROBLEM:
            return findings
    return [*findings, *made(patient, CHECKS)]


def made(patient: CheckContext, checks: Iterable[Check]) -> list[Finding]:
    """Run some checks on an installation that has a database and a schema."""
    findings: list[Finding] = []
    for check in checks:
        try:
            findings += check(patient)
        except Exception as error:
            # An error in one check must not keep the others from running.
            said = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
            findings.append(
                Finding(check.__name__, Level.PROBLEM, said, "Look at it, then run doctor again.")
            )
    return findings


def database(patient: CheckContext) -> Iterable[Finding]:
    where = patient.database.settings.shown_url
    try:
        found = diagnostics.version(patient.database)
    except (DatabaseUnavailable, TypeError, ValueError, OSError) as error:  # the driver may refuse the URL
        advice = "Start the database, or correct the URL (PENSTOCK_DATABASE_URL, --database)."
        said = patient.database.settings.hidden(str(error))
        return [Finding("database", Level.PROBLEM, said, advice)]
    return [Finding("database", Level.OK, f"{found} at {where}")]


def schema(patient: CheckContext) -> Iterable[Finding]:
    try:
        version.ensure(patient.database, upgrade=False)
    except PenstockError as error:
        advice = MIGRATE if isinstance(error, SchemaOutdated) else "Then run doctor again."
        return [Finding("schema", Level.PROBLEM, str(error).removesuffix(f". {advice}"), advice)]
    missing = _missing(patient)
    if missing:
        advice = "Something has changed the tables. Compare with: penstock migrate --sql"
        return [Finding("schema", Level.PROBLEM, f"missing: {', '.join(missing)}", advice)]
    return [Finding("schema", Level.OK, f"version {version.LATEST}, all tables and indexes there")]


def clock(patient: CheckContext) -> Iterable[Finding]:
    before = time.time()
    row = patient.database.read(lambda tx: tx.row(CLOCK))
    middle = (before + time.time()) / 2
    skew = middle - (row[0] / 1e6 if row else middle)
    if abs(skew) > SKEW:
        message = (
            f"this host's clock is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} the database's"
        )
        advice = (
            "Nothing breaks, for only the database's clock counts; but logs will not match. Run NTP on both."
        )
        return [Finding("clock", Level.WARNING, message, advice)]
    return [Finding("clock", Level.OK, f"this host and the database differ by {abs(skew) * 1000:.0f} ms")]


def processes(patient: CheckContext) -> Iterable[Finding]:
    reap_after = patient.database.settings.reap_after
    found = patient.database.read(list_processes)
    silent = [process for process in found if process.is_silent(reap_after, 1.5)]
    workers = [process for process in found if process.role != "supervisor"]
    live = [process for process in workers if not process.is_silent(reap_after)]
    if silent:
        names = ", ".join(f"{process.host}/{process.pid}" for process in silent[:5])
        message = (
            f"silent for longer than reap_after, and no worker reaps them: "
            f"{counted(len(silent), 'process', 'processes')} ({names})"
        )
        yield Finding(
            "processes", Level.PROBLEM, message, "Start a worker: it takes back their work by itself."
        )
    elif not live:
        yield Finding(
            "processes", Level.WARNING, "no worker is running", "Start one: penstock worker MODULE:APP"
        )
    else:
        alive = f"{counted(len(live), 'worker process', 'worker processes')} alive"
        yield Finding("processes", Level.OK, alive)


def claims(patient: CheckContext) -> Iterable[Finding]:
    age = int(2 * patient.database.settings.reap_after * 1_000_000)
    row = patient.database.read(lambda tx: tx.row(ORPHANS, age=age))
    if row and row[0]:
        first = f"such as {row[1]}, of jobs {str(row[2])[:200]}"
        message = f"no worker takes back {counted(row[0], 'claim')} of processes that are gone, {first}"
        advice = "Start a worker: every worker reclaims. If one runs, its log says what keeps it; then: doctor --repair"
        yield Finding("claims", Level.PROBLEM, message, advice)
    else:
        yield Finding("claims", Level.OK, "no orphaned claims")


def waiting(patient: CheckContext) -> Iterable[Finding]:
    """Find jobs that are ready or due, and that no worker has taken for too long."""
    found = patient.database.read(tallies.queue_lengths, 1)
    lags = {queue: lag for queue, (_, lag) in found.items() if lag is not None}
    alone = patient.database.read(unattended, sorted(lags), patient.database.settings.reap_after)
    paused = {pause.name: pause for pause in patient.database.read(queue_controls.listed)}
    for queue, pause in sorted(paused.items()):
        why = f": {pause.why}" if pause.why else ""
        message = f"queue {queue!r} is paused by {pause.changed_by}{why}"
        yield Finding("queues", Level.WARNING, message, f"When it is time: penstock queues resume {queue}")
    for host, error in sorted(patient.database.read(queue_controls.read).unreadable.items()):
        message = f"the queues set for the workers of host {host} cannot be read and are ignored: {error}"
        where = "" if host == queue_controls.EVERYWHERE else f" --host {host}"
        yield Finding("queues", Level.PROBLEM, message, f"Set them again: penstock queues set NAMES{where}")
    alone = [queue for queue in alone if queue not in paused]
    for queue in alone:
        advice = (
            f"Start one: penstock worker MODULE:APP --queues {queue}; or see `penstock processes` for a typo."
        )
        yield Finding("queues", Level.WARNING, f"no live worker takes from queue {queue!r}", advice)
    late = {
        queue: lag for queue, lag in lags.items() if lag > LAG and queue not in alone and queue not in paused
    }
    for queue, lag in sorted(late.items()):
        message = f"the oldest ready job of queue {queue!r} has waited for {lag:.0f} s"
        advice = (
            "Do jobs hang? `kill -USR1 PID` of a worker shows it. If not: more --processes or --concurrency."
        )
        yield Finding("waiting", Level.WARNING, message, advice)
    if not late:
        yield Finding("waiting", Level.OK, f"nothing ready has waited for more than {LAG:.0f} s")
    row = patient.database.read(lambda tx: tx.row(OVERDUE))
    if row and row[0] is not None and row[1] - row[0] > LAG * 1_000_000:
        message = (
            f"scheduled work is due for {(row[1] - row[0]) / 1e6:.0f} s and no worker makes it available"
        )
        yield Finding("scheduled", Level.PROBLEM, message, "Start a worker: every worker promotes due work.")


def timers(patient: CheckContext) -> Iterable[Finding]:
    """Find timers of runs that are due, and that no worker has taken for too long."""
    rows = patient.database.read(lambda tx: tx.rows(OVERDUE_TIMERS))
    late = {str(kind): (int(now) - int(due)) / 1e6 for kind, due, now in rows if now - due > LAG * 1e6}
    for kind, seconds in sorted(late.items()):
        advice = "Start a worker: every worker looks after runs."
        if kind == REMIND_SIGNED:
            advice = "These reminders hold a token: give the workers the secret (PENSTOCK_SECRET)."
        yield Finding("timers", Level.PROBLEM, f"timers of kind {kind!r} are due for {seconds:.0f} s", advice)
    if not late:
        yield Finding("timers", Level.OK, f"no timer of a run is due for more than {LAG:.0f} s")


def schedules(patient: CheckContext) -> Iterable[Finding]:
    """Schedules that are late, cannot be fired, are not declared any more, or will never fire."""
    seen = patient.database.read(ailing, LAG)
    for name, seconds in seen.late.items():
        message = f"schedule {name!r} is due for {seconds:.0f} s and no worker fires it"
        yield Finding("schedules", Level.PROBLEM, message, "Start a worker: every worker fires schedules.")
    for name, trouble in seen.troubled.items():
        advice = f"Mend it (`penstock schedules next {name!r}` says more), update it, or delete it."
        yield Finding("schedules", Level.PROBLEM, f"schedule {name!r} cannot be fired: {trouble}", advice)
    for name in seen.orphaned:
        message = f"schedule {name!r} is not declared by any code any more, and does not fire"
        yield Finding("schedules", Level.WARNING, message, f"Delete it: penstock schedules delete {name!r}")
    for name in seen.never:
        advice = "Look at its start, end and expression; update or delete it."
        yield Finding("schedules", Level.WARNING, f"schedule {name!r} will never fire again", advice)
    if not (seen.late or seen.troubled or seen.orphaned or seen.never):
        yield Finding(
            "schedules", Level.OK, f"{counted(seen.count, 'schedule')}, {seen.paused} paused; none is late"
        )


def unknown_tasks(patient: CheckContext) -> Iterable[Finding]:
    """Find work that no process of this app can run. Only the head of each lane is looked at."""
    if not patient.tasks and not patient.of_app:
        return
    if not patient.tasks and not patient.reconcilers:
        advice = "Import the modules that declare them where the app is made, or name another: --app shop.tasks:app"
        yield Finding(
            "tasks", Level.WARNING, "the app declares no tasks: its workers can run nothing", advice
        )
    found: dict[str, int] = {}
    for task, count in patient.database.read(_waiting_tasks):
        if task not in patient.tasks:
            found[task] = found.get(task, 0) + int(count)
    for task, count in sorted(found.items()):
        advice = f"Deploy a worker that declares it, or give the renamed task its old name: @app.task(name={task!r})"
        yield Finding(
            "tasks", Level.WARNING, f"{counted(count, 'ready job')} for {task!r}, which the app lacks", advice
        )
    if not found and patient.tasks:
        yield Finding("tasks", Level.OK, f"all waiting work is for the app ({patient.declared})")


def reconciled_tables(patient: CheckContext) -> Iterable[Finding]:
    """The user's own tables: their columns, their index, and rows that no reconciler visits."""
    if not patient.reconcilers:
        return
    missing = lacks(patient.database.engine, patient.reconcilers)
    for lack in missing:
        yield Finding("reconcilers", Level.PROBLEM, f"{lack.table} lacks {lack.what}", f"Run: {lack.sql}")
    if missing:
        return
    for row in look(patient.database, patient.reconcilers):
        if row.expired:
            message = (
                f"processes of {row.name} that are gone hold {counted(row.expired, 'row')} of {row.table}"
            )
            advice = "Start a worker with --role reconciler or all: it takes them over by itself."
            yield Finding("reconcilers", Level.WARNING, message, advice)
        elif row.lag is not None and row.lag > LAG:
            message = f"the oldest due row of {row.table} has waited for {row.lag:.0f} s for {row.name}"
            yield Finding(
                "reconcilers",
                Level.WARNING,
                message,
                "Start a worker with --role reconciler or all; if one runs, give the reconciler more workers=.",
            )
        else:
            yield Finding(
                "reconcilers", Level.OK, f"{row.name}: {counted(row.eligible, 'row')} due, {row.locked} held"
            )


def damaged_rows(patient: CheckContext) -> Iterable[Finding]:
    """Find damaged rows, and name each of them."""
    found = damage.find(patient.database, find_pipeline=patient.find_pipeline)
    for one in found[:MOST_NAMED]:
        yield Finding("rows", Level.PROBLEM, one.message, one.advice)
    if len(found) > MOST_NAMED:
        message = f"damaged besides: {counted(len(found) - MOST_NAMED, 'row')}"
        yield Finding("rows", Level.PROBLEM, message, "Mend what can be mended: penstock doctor --repair")
    if not found:
        yield Finding("rows", Level.OK, "no row is damaged")


def runs(patient: CheckContext) -> Iterable[Finding]:
    """Runs that are active without anything that could move them."""
    stuck_runs = patient.database.read(_stuck_runs)
    if not stuck_runs:
        return [Finding("runs", Level.OK, "no run is stuck")]
    message = f"{counted(len(stuck_runs), 'active run')} with nothing queued, held, delayed or waiting: {stuck_runs[0]}"
    return [Finding("runs", Level.PROBLEM, message, "Start a worker: it mends them within a minute or two.")]


def _stuck_runs(tx: Transaction) -> list[str]:
    return [run for run in repair.look(tx, FIRST_ID, MOST_RUNS) if repair.is_stuck(tx, run)]


def letters(patient: CheckContext) -> Iterable[Finding]:
    found = patient.database.read(dead_letters.by_reason, MOST_LETTERS)
    if not found:
        return [Finding("dead letters", Level.OK, "none")]
    task, reason, count = found[0]
    total = sum(number for _, _, number in found)
    letters = f"{total} or more dead letters" if total >= MOST_LETTERS else counted(total, "dead letter")
    most = f"most of them: {count} of " if len(found) > 1 else "of "
    message = f"{letters}; {most}{task} ({reason})"
    return [Finding("dead letters", Level.WARNING, message, "Look at them: penstock dead-letters")]


def database_measurements(patient: CheckContext) -> Iterable[Finding]:
    for vital in diagnostics.measurements(patient.database):
        level = Level.WARNING if vital.advice else Level.OK
        yield Finding(vital.name, level, vital.words, vital.advice or "")


def _missing(patient: CheckContext) -> list[str]:
    inspector = inspect(patient.database.engine)
    there = set(inspector.get_table_names(schema=patient.database.schema))
    missing = [table.name for table in patient.metadata.tables.values() if table.name not in there]
    for table in patient.metadata.tables.values():
        if table.name in there and table.indexes:
            names = {index["name"] for index in inspector.get_indexes(table.name, schema=table.schema)}
            missing += [f"index {index.name}" for index in table.indexes if index.name not in names]
    return missing


def _waiting_tasks(tx: Transaction) -> list[tuple[str, int]]:
    lanes = claim.discover(tx, None)
    rows = [tx.rows(TASKS, queue=queue, tier=tier, limit=SAMPLE) for queue, tier in lanes]
    return [(task, int(count)) for found in rows for task, count in found]


FIRST_CHECKS: list[Check] = [database, schema]
CHECKS: list[Check] = [
    clock,
    processes,
    claims,
    damaged_rows,
    waiting,
    timers,
    schedules,
    unknown_tasks,
    runs,
    letters,
    reconciled_tables,
    database_measurements,
]
