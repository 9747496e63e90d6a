"""One schedule: a seed in, a verdict out.

First trouble, for a few hundred steps; then calm, in which everything has to come to its end; then the checker.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass

from penstock.database.dialect import ALL_PARTS, WITHOUT_ONE_STATEMENT
from penstock.pipelines.advance import run_rows
from penstock.pipelines.maintenance import chores, repair
from penstock.runtime.liveness import job_retention
from tests.simulation import checker, poison, watching
from tests.simulation.deploys import Deploys
from tests.simulation.dialect import OF_CLAIM
from tests.simulation.fate import Fate
from tests.simulation.hosts import ClientHost, Host, WorkerHost
from tests.simulation.machines import Machine
from tests.simulation.server import Faults, Server
from tests.simulation.story import Story
from tests.simulation.temper import FAST_FROM, Lean, Temper
from tests.simulation.virtual import living_in, replaced, virtual
from tests.simulation.workloads import Act, Workload, row_tables
from tests.simulation.workloads.blocks import Blocks
from tests.simulation.workloads.callers import tidying
from tests.simulation.workloads.limits import Limits
from tests.simulation.workloads.rows import Rows
from tests.simulation.workloads.runs import Runs
from tests.simulation.workloads.shapes import Shapes
from tests.simulation.workloads.tasks import Tasks
from tests.simulation.world import Stuck, World

ALL: tuple[Workload, ...] = (Tasks(), Runs(), Shapes(), Rows(), Limits(), Blocks())

WORKERS = 3
CLIENTS = 2
CALM_STEPS = 6000
ALONE = 0.85
"""How often a schedule has one workload only, where there are several."""
OFTEN = 3.0
"""Seconds between two searches for what is old enough to go, and for runs that nothing moves, where that is sought."""
COLLECT_EVERY = 500
"""Schedules between two searches for garbage everywhere, and not only in what a schedule has just left behind."""
UNFINISHED = f"""
SELECT EXISTS (SELECT 1 FROM penstock_claims WHERE process_id NOT LIKE '{poison.GHOST}%')
 OR EXISTS (SELECT 1 FROM penstock_availabilities WHERE job_id NOT LIKE '{poison.GHOST}%')
 OR EXISTS (SELECT 1 FROM penstock_scheduled WHERE job_id NOT LIKE '{poison.GHOST}%')
 OR EXISTS (SELECT 1 FROM penstock_job_states WHERE status IN ('waiting', 'scheduled', 'available', 'running')
    AND job_id NOT LIKE '{poison.GHOST}%')
 OR EXISTS (SELECT 1 {checker.CANCELLATIONS_OF_THE_DEAD})
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    seed: int
    wrong: list[str]
    world: World

    @property
    def steps(self) -> int:
        return self.world.steps


NO_LEAN: Lean = {}


class Stage:
    """What schedules share: the server with its schema, and the machines. Made once, used for many."""

    def __init__(self, workloads: Sequence[Workload] = ALL) -> None:
        self.workloads = workloads
        self.played = 0
        self.struck: Counter[str] = Counter()
        """How often each kind of trouble has happened, in all schedules."""
        self.server = Server()
        declare = [workload.declare for workload in workloads]
        self.workers = [Machine(f"worker{n}", self.server, declare) for n in range(1, WORKERS + 1)]
        self.clients = [Machine(f"client{n}", self.server, declare) for n in range(1, CLIENTS + 1)]
        first = self.workers[0].app
        first.migrate()
        watching.watch(self.server.connection, first.database.prefix)
        poison.prepare(self.server.connection)
        for workload in workloads:
            workload.prepare(self.server.connection)
        self.server.connection.commit()
        self.broom = watching.Broom(self.server.connection)

    def playing(self, *workloads: Workload) -> Stage:
        """The same stage for workloads that are made of the same tasks."""
        other = copy(self)
        other.workloads = workloads
        return other

    def play(self, seed: int, lean: Lean = NO_LEAN) -> Verdict:
        """Run the schedule of a seed and judge it."""
        verdict = self._play(seed, lean)
        self.played += 1
        # What is over is found among the young, and its memory used again at once.
        gc.collect(0 if self.played % COLLECT_EVERY else 2)
        return verdict

    def _play(self, seed: int, lean: Lean) -> Verdict:
        self.broom.sweep()
        world = World(seed)
        temper = Temper.of(world.rng, lean)
        for machine in (*self.workers, *self.clients):
            fast = bool(temper.fast) or (seed >= FAST_FROM and seed % 2 == 1)
            machine.dialect.fast_path = ALL_PARTS if fast else WITHOUT_ONE_STATEMENT
        words = replaced(run_rows, {"OF_CLAIM": OF_CLAIM})
        with living_in(world), self._keeping(temper.retention), words:
            try:
                play = Play(self, world, temper)
                stuck = play.run()
                if self.server.holder is not None:
                    self.server.holder.undo()  # a process is in a transaction that no caller waits for
                if temper.poison:
                    poison.clean(self.server.connection)
                play.fate.hosts[-1].machine.shut()  # the checker reads over a wire that no fault has cut
                story = Story.of(world, self.server.connection, play.fate.hosts)
                wrong = checker.check(story, stuck, play.workloads) + sorted(play.fate.strange)
            finally:
                self.struck.update(play.fate.struck)
                for host in play.fate.hosts:
                    world.bury(host)
                    host.machine.forget()
                world.end()
                self.server.begin_world(None, Faults())
        return Verdict(seed, wrong, world)

    @contextmanager
    def _keeping(self, seconds: float) -> Iterator[None]:
        """For so long workers keep what is over, in this schedule; and they look often."""
        with ExitStack() as stack:
            if seconds:
                for machine in (*self.workers, *self.clients):
                    stack.enter_context(machine.keeping(seconds))
                stack.enter_context(replaced(job_retention, {"RETENTION_INTERVAL": OFTEN}))
                stack.enter_context(replaced(chores, {"ROUNDS": OFTEN}))
                stack.enter_context(replaced(repair, {"OLD_ENOUGH": OFTEN}))
            yield


class Play:
    """One schedule on a stage."""

    def __init__(self, stage: Stage, world: World, temper: Temper) -> None:
        self.stage = stage
        self.world = world
        self.temper = temper
        rng = world.rng
        world.stickiness = temper.sticks
        world.record("keeps", temper.retention)
        self.reconcilers: list[str] = []
        self.left = [list(acts) for acts in self._scripts(rng)]
        self.fate = Fate(temper, [], self._revive)
        self.deploys = Deploys(world, self.fate)
        world.nemesis = self.fate
        stage.server.begin_world(world, self.fate)
        for machine in stage.workers[: rng.choice([2, 2, WORKERS])]:
            self.fate.hosts.append(self._worker(machine, 1))
        for index, machine in enumerate(stage.clients):
            self.fate.hosts.append(self._client(machine, index, 1))
        for host in self.fate.hosts:
            host.start()
        self.looked_at = -1
        """How much had been written when it was last found not to be over."""

    def _scripts(self, rng: random.Random) -> list[list[Act]]:
        self.workloads = self._chosen(rng)
        self.has_runs = any(workload.name in ("runs", "shapes") for workload in self.workloads)
        for workload in self.workloads:
            self.reconcilers += workload.fill(self.stage.server.connection, rng)
        if self.reconcilers:
            self.world.record("rows", row_tables.all_rows(self.stage.server.connection))
        acts = [act for workload in self.workloads for act in workload.script(rng)]
        if rng.random() < self.temper.tidies:
            acts.insert(rng.randint(0, len(acts)), tidying(rng))
        cut = rng.randint(0, len(acts))
        return [acts[:cut], acts[cut:]]

    def _chosen(self, rng: random.Random) -> Sequence[Workload]:
        """One workload, or two that meet."""
        known = self.stage.workloads
        chosen = rng.choices(
            known, [workload.often for workload in known], k=1 if rng.random() < ALONE else 2
        )
        return list(dict.fromkeys(chosen))

    def _worker(self, machine: Machine, life: int) -> WorkerHost:
        host = WorkerHost(self.world, machine, life, self.reconcilers)
        if not self.has_runs:
            host.app.chores = ()  # there are no runs to look after
        return host

    def _client(self, machine: Machine, index: int, life: int) -> ClientHost:
        left = self.left[index]

        def perform(client: ClientHost) -> None:
            while left:
                left[0](client)
                left.pop(0)

        return ClientHost(self.world, machine, life, perform)

    def _revive(self, dead: Host) -> Host | None:
        """A new process where one died. A client is only started again while it has something to do."""
        if isinstance(dead, WorkerHost):
            host: Host = self._worker(dead.machine, dead.life + 1)
        else:
            index = self.stage.clients.index(dead.machine)
            if not self.left[index]:
                return None
            host = self._client(dead.machine, index, dead.life + 1)
        host.start()
        return host

    def run(self) -> str | None:
        """Trouble, then calm. What is said is why it did not come to an end."""
        world = self.world
        try:
            world.run_for(self.temper.trouble)
            self.fate.calm_down(world)
            if world.rng.random() < self.temper.home and world.now >= self.fate.away_until:
                self.deploys.in_the_middle()
            world.run(self._over, CALM_STEPS)
            world.run(self._at_rest, CALM_STEPS)
            if world.rng.random() < self.temper.closes:
                self.deploys.at_the_end()
        except Stuck as stuck:
            return str(stuck)
        return None

    def _at_rest(self) -> bool:
        """What was committed has also come to the mind of who did it, and no place stays taken."""
        return not any(
            worker.source.holdings.count or worker.dispatcher.busy for worker in self.deploys.workers()
        )

    def _over(self) -> bool:
        if self.world.steps % 8 or any(self.left) or self.stage.server.holder is not None:
            return False
        connection = self.stage.server.connection
        if connection.total_changes == self.looked_at:
            return False  # nothing was written since the last look
        if any(host.alive and host.stopped_at for host in self.fate.hosts):
            return False  # a process that was taken for dead is to come back to what others have made of its work
        self.looked_at = connection.total_changes
        execute = connection.execute
        queries = [UNFINISHED, *(workload.unfinished for workload in self.workloads)]
        return not any(execute(query).fetchone()[0] for query in queries)


@contextmanager
def theatre(workloads: Sequence[Workload] = ALL) -> Iterator[Stage]:
    """A stage in a virtual world."""
    with virtual():
        with living_in(World(0)):
            stage = Stage(workloads)
        with quiet_collector():
            yield stage


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Garbage is collected by the stage, between two schedules."""
    gc.disable()
    gc.collect()
    gc.freeze()  # what is there now stays: the collector need not look at it again
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()
