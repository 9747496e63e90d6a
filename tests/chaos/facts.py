"""What a chaos run left behind, as plain values: the checks are functions of it, and tests can falsify it."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from penstock import Penstock
from penstock.values.typed_json.json_text import loads
from tests.chaos import ledger
from tests.chaos.ledger import Entry
from tests.chaos.strike import Strike
from tests.chaos.world import World

JOBS = """
SELECT j.id, j.task, j.job_key, j.run_id, j.node, j.path, j.created_at, s.status, s.reason, s.generation, s.retry_count,
  s.crash_count, s.token, s.finished_at, j.payload, j.options
FROM {jobs} j LEFT JOIN {job_states} s ON s.job_id = j.id WHERE j.task <> 'filler'
"""
EXECUTIONS = """
SELECT e.job_id, e.generation, e.process_id, e.started_at, e.finished_at, e.outcome, e.output
FROM {executions} e JOIN {jobs} j ON j.id = e.job_id WHERE j.task <> 'filler' ORDER BY e.job_id, e.generation
"""
RUNS = "SELECT id, pipeline, run_key, status, ended_at, parent_run_id, scheduled_for FROM {runs}"
SCHEDULES = "SELECT id, name, every FROM {schedules}"
TICKS = """
SELECT schedule_id, kind, nominal_at, first_at, number, outcome, target_id FROM {schedule_ticks}
ORDER BY schedule_id, nominal_at
"""
MINUTE = 60_000_000
SIGNALS = "SELECT run_id, signalled_at FROM {signals}"
CHAINS = "SELECT upstream_id, downstream_id FROM {chains}"
DEAD = "SELECT job_id FROM {dead_letters}"
EMPTY_AT_THE_END = (
    "claims",
    "availabilities",
    "scheduled",
    "cancellations",
    "processes",
    "timers",
    "advancements",
)
LOCKED = "SELECT '{table}', id FROM {table} WHERE lock_token IS NOT NULL"
"""What a writer announced who then died is left; it counts for a moment only, and is swept later."""
ROWS = ("counters", "fleets", "ships")


@dataclass(slots=True)
class Execution:
    """One attempt that came to its end."""

    generation: int
    process: str | None
    started_at: int
    finished_at: int
    outcome: str
    output: Any = None


@dataclass(slots=True)
class Job:
    id: str
    task: str
    key: str | None
    run: str | None
    node: str | None
    path: str | None
    created_at: int
    status: str | None
    reason: str | None
    generation: int
    retry_count: int
    crash_count: int
    token: int | None
    finished_at: int | None
    payload: Any
    executions: list[Execution] = field(default_factory=list)
    scheduled_for: int | None = None

    @property
    def outcomes(self) -> list[str]:
        return [execution.outcome for execution in self.executions]

    @property
    def result(self) -> Any:
        """What its one success returned."""
        return next((e.output for e in self.executions if e.outcome == "succeeded"), None)

    def __str__(self) -> str:
        return f"{self.task} {self.id}"


@dataclass(slots=True)
class Run:
    id: str
    pipeline: str
    key: str | None
    status: str
    ended_at: int | None
    parent: str | None
    scheduled_for: int | None = None

    def __str__(self) -> str:
        return f"run {self.id} of {self.pipeline}"


@dataclass(slots=True)
class Tick:
    """A row of a tick; or of several that were skipped, from the first to the nominal one."""

    kind: str
    nominal: int
    first: int
    number: int
    outcome: str
    target: str | None


@dataclass(slots=True)
class Schedule:
    """A schedule that ticks at even distances."""

    every: int
    ticks: list[Tick] = field(default_factory=list)


@dataclass(slots=True)
class Facts:
    """Everything the checks may look at."""

    seed: int
    jobs: dict[str, Job] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    strikes: list[Strike] = field(default_factory=list)
    signals: dict[str, int] = field(default_factory=dict)
    chains: list[tuple[str, str]] = field(default_factory=list)
    schedules: dict[str, Schedule] = field(default_factory=dict)
    """By their names."""
    dead_letters: set[str] = field(default_factory=set)
    bookings: list[tuple[str, int]] = field(default_factory=list)
    orders: set[int] = field(default_factory=set)
    bumps: dict[int, int] = field(default_factory=dict)
    counters: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Target and count."""
    fleets: dict[int, int] = field(default_factory=dict)
    ships: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Fleet, times sailed, times polished."""
    marks: list[tuple[str, int, int, int]] = field(default_factory=list)
    """Kind, row, value and token, in the order in which they were written."""
    left: dict[str, int] = field(default_factory=dict)
    locked: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    oddities: list[str] = field(default_factory=list)

    def told(self, what: str) -> list[Entry]:
        return [entry for entry in self.entries if entry["what"] == what]

    def steps(self) -> dict[str, list[Job]]:
        found: dict[str, list[Job]] = defaultdict(list)
        for job in self.jobs.values():
            if job.run is not None:
                found[job.run].append(job)
        return found


def gather(world: World) -> Facts:
    app = world.app
    facts = Facts(world.terms.seed, _jobs(app), _runs(app), ledger.read(world.ledger), world.strikes)
    facts.signals = {str(run): int(at) for run, at in _rows(app, SIGNALS)}
    facts.chains = [(str(up), str(down)) for up, down in _rows(app, CHAINS)]
    facts.schedules = _schedules(app)
    facts.dead_letters = {str(job) for (job,) in _rows(app, DEAD)}
    facts.bookings = [(job, number) for job, number in _rows(app, "SELECT job, number FROM bookings")]
    facts.orders = {number for (number,) in _rows(app, "SELECT number FROM orders")}
    facts.bumps = dict(_rows(app, "SELECT number, counter FROM bumps"))
    facts.counters = {
        id: (target, done) for id, target, done in _rows(app, "SELECT id, target, done FROM counters")
    }
    facts.fleets = dict(_rows(app, "SELECT id, done FROM fleets"))
    facts.ships = {
        id: (fleet, sailed, done)
        for id, fleet, sailed, done in _rows(app, "SELECT id, fleet_id, sailed, done FROM ships")
    }
    marks = _rows(app, "SELECT kind, marks.row, value, token FROM marks ORDER BY line")
    facts.marks = [(kind, row, value, token) for kind, row, value, token in marks]
    facts.left = {
        table: int(_rows(app, f"SELECT count(*) FROM {{{table}}}")[0][0]) for table in EMPTY_AT_THE_END
    }
    facts.locked = [
        f"{table} {id}" for name in ROWS for table, id in _rows(app, LOCKED.replace("{table}", name))
    ]
    facts.strays, facts.codes, facts.oddities = world.strays(), world.codes, world.oddities
    return facts


def _jobs(app: Penstock) -> dict[str, Job]:
    found = {}
    for id, task, key, run, *rest, options in _rows(app, JOBS):
        job = Job(str(id), task, key, str(run) if run else None, *rest)
        job.payload = loads(job.payload)
        told: Any = loads(options) if options else {}
        job.scheduled_for = told.get("scheduled_for")
        found[job.id] = job
    for id, generation, process, started, finished, outcome, output in _rows(app, EXECUTIONS):
        value = loads(output) if output else None
        attempt = Execution(generation, str(process) if process else None, started, finished, outcome, value)
        found[str(id)].executions.append(attempt)
    return found


def _runs(app: Penstock) -> dict[str, Run]:
    rows = _rows(app, RUNS)
    runs = [
        Run(str(id), name, key, status, ended, str(up) if up else None, nominal)
        for id, name, key, status, ended, up, nominal in rows
    ]
    return {run.id: run for run in runs}


def _schedules(app: Penstock) -> dict[str, Schedule]:
    rows = _rows(app, SCHEDULES)
    found = {str(id): Schedule(every or MINUTE) for id, _, every in rows}
    for id, kind, nominal, first, number, outcome, target in _rows(app, TICKS):
        tick = Tick(kind, nominal, first, number, outcome, str(target) if target else None)
        found[str(id)].ticks.append(tick)
    return {name: found[str(id)] for id, name, _ in rows}


def _rows(app: Penstock, sql: str) -> list[tuple[Any, ...]]:
    return app.database.read(lambda tx: tx.rows(sql))
