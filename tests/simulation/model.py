"""The rules of a job's life, replayed over the history: which changes there may be, and who may make them.

Every committed change of `job_states` passes here in the order of commits, with what the same transaction wrote to
the other tables. A change that the design does not allow is reported with its time and its author. The numbers are
those of the invariants in the design.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic_core import from_json

from tests.simulation import moves
from tests.simulation.machines import SETTINGS
from tests.simulation.moves import State
from tests.simulation.world import SECOND, START

REAP_AFTER = int(SETTINGS["reap_after"] * SECOND)
HEARD_BY = int(2 * SETTINGS["heartbeat_interval"] * SECOND)
LONGEST_DELAY = 700 * SECOND


class Job(NamedTuple):
    id: str
    task: str
    queue: str
    priority: int
    payload: str
    max_crashes: int | None
    key: str | None
    run_id: str | None


@dataclass(slots=True)
class Model:
    """Everything known from the history so far."""

    wrong: list[str] = field(default_factory=list)
    jobs: dict[str, Job] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    queued: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    due: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    parked: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The keys of limits that each job waits for."""
    claims: dict[int, tuple[str, list[str]]] = field(default_factory=dict)
    processes: dict[str, int] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    """The host on which each process lived or lives."""
    executions: dict[tuple[str, int], tuple[Any, ...]] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    """Every token ever given, and the transaction that gave it."""
    began: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """When each attempt began, and under which token."""
    ended: dict[tuple[str, int], tuple[str, object]] = field(default_factory=dict)
    """How each handler ended: `raised` or `returned`, and what."""
    leaving: set[str] = field(default_factory=set)
    """Hosts that were asked to stop."""
    departed: set[str] = field(default_factory=set)
    """Processes that took their own row away."""

    pruned: set[str] = field(default_factory=set)
    """Jobs that are there no more. What was last known of them stays."""
    put_away: set[str] = field(default_factory=set)
    """Dead letters that an operator has dealt with."""
    dead: set[str] = field(default_factory=set)
    """Hosts that really died."""
    away_at: int = 0
    """Since when the database was last away, and until when; and since when it had been there before."""
    back_at: int = 0
    there_at: int = 0
    delayed_at: int = 0
    """When all processes were last stopped at once, and for how long."""
    delayed_by: int = 0

    refused: set[str] = field(default_factory=set)
    """Jobs of which the database refused outcomes for a while: one of them may have failed for that."""

    is_poisoned: bool = False
    """Rows were damaged: where a job cannot be claimed, another may be put off in its place."""

    frozen_at: dict[str, int] = field(default_factory=dict)
    """When each host was last stopped: its silence since then is its own."""

    tx: int = 0
    at: int = 0
    who: str = ""

    def read(self, history: Iterable[tuple[Any, ...]]) -> None:
        for entry in history:
            self.at, self.who, kind = entry[:3]
            if kind == "commit":
                self.tx = entry[3]
                self._commit(entry[4])
            else:
                self._hear(kind, entry[3:])

    def say(self, what: str) -> None:
        self.wrong.append(f"{(self.at - START) / SECOND:.3f} {self.who}: {what}")

    @property
    def host(self) -> str:
        return self.who.partition("/")[0]

    # what hosts did

    def _hear(self, kind: str, facts: Sequence[Any]) -> None:
        match kind:
            case "began":
                job, generation, token = facts
                if (job, generation) in self.began:
                    self.say(f"attempt {generation} of {job} runs twice [1]")
                self.began[job, generation] = (self.at, token)
            case "raised" | "returned":
                self.ended[facts[0], facts[1]] = (kind, facts[3])
            case "stopping":
                self.leaving.add(facts[0])
            case "went home":
                self._check_left(facts[0])
            case "crashed":
                self.dead.add(facts[0])
            case "outage":
                self.away_at, self.back_at, self.there_at = self.at, facts[0], self.back_at
            case "delayed":
                self.delayed_at = self.at
                self.delayed_by = facts[0]
            case "refused":
                self.refused.add(facts[0])
            case "poisoned":
                self.is_poisoned = True
            case "froze":
                self.frozen_at[facts[0]] = self.at

    def _check_left(self, hosts: Sequence[str]) -> None:
        """Who stops in order, and nothing goes wrong meanwhile, has given everything back.

        But for what is to be cancelled: the process that reclaims it ends it, with all that follows.
        """
        held = {job_id: state for job_id, state in self.states.items() if state.status == "running"}
        for job_id, state in held.items():
            if (
                self.hosts.get(state.process or "") in hosts
                and not state.cancel
                and job_id not in self.refused
            ):
                self.say(f"{job_id} is still held by a process that has stopped in order [10]")

    # what was committed

    def _commit(self, facts: Sequence[tuple[Any, ...]]) -> None:
        changes = []
        for fact in facts:
            self.at, kind = fact[:2]
            if kind == "state":
                changes.append(fact)
            else:
                self._note(kind, fact[2:])
        for fact in changes:
            self.at = fact[0]
            moves.change(self, fact[2], fact[3:11], fact[11:])
        for job_id in {change[2]: None for change in changes}:
            if job_id in self.states:
                moves.places(self, job_id, self.states[job_id])

    def _note(self, kind: str, rest: tuple[Any, ...]) -> None:
        match kind:
            case "jobs+":
                self.jobs[rest[0]] = Job(*rest)
            case "availabilities+":
                self.queued[rest[0]].append(rest[1])
            case "availabilities-":
                self.queued[rest[0]].remove(rest[1])
            case "scheduled+":
                self.due[rest[0]].append(rest[1])
                # Of a job that is replaced, the time is read in the statement before.
                earliest = -LONGEST_DELAY if self.jobs[rest[0]].task in moves.REPLACED else 0
                if not earliest <= rest[1] - self.at <= LONGEST_DELAY:
                    self.say(f"{rest[0]} is scheduled by another clock than the database's [8]")
            case "scheduled-":
                self.due[rest[0]].remove(rest[1])
                may = self.states[rest[0]].status == "cancelled" or self.jobs[rest[0]].task in moves.REPLACED
                if rest[1] > self.at and not may:
                    self.say(f"{rest[0]} left the schedule before it was due [8]")
            case "parked+":
                self.parked[rest[0]].append(rest[1])
            case "parked-":
                self.parked[rest[0]].remove(rest[1])
            case "claims+":
                self.claims[rest[0]] = (rest[1], from_json(rest[2]))
            case "claims-":
                self.claims.pop(rest[0], None)
            case "executions+":
                if rest[:2] in self.executions:
                    self.say(f"attempt {rest[1]} of {rest[0]} was settled twice [3]")
                self.executions[rest[:2]] = (self.tx, *rest[2:])
            case "dead_letters-":
                self.put_away.add(rest[0])
            case "processes+":
                self.processes[rest[0]] = rest[1]
                self.hosts[rest[0]] = self.host
            case "beat":
                self.processes[rest[0]] = rest[1]
            case "processes-":
                self._remove(rest[0])

    def _remove(self, process: str) -> None:
        """A process row goes: its own host removes it, or it has been silent for long enough."""
        heard_at = self.processes.pop(process)
        silence = self.at - heard_at
        if self.who in [f"{self.hosts[process]}/{thread}" for thread in ("leave", "arrive")]:
            self.departed.add(process)
        elif silence < REAP_AFTER:
            self.say(f"process {process} was taken for dead after {silence / SECOND:.1f} s [10]")
        elif self.frozen_at.get(self.hosts[process], 0) > heard_at:
            return
        elif self.delayed_at > heard_at:
            self._check_delayed(process, heard_at)
        elif self._was_silent_before(heard_at):
            return  # no outage is to blame
        elif self.at - self.back_at < REAP_AFTER / 2 and self.hosts[process] not in self.dead:
            self.say(
                f"process {process} was taken for dead after an outage, before it could be heard of [11]"
            )

    def _was_silent_before(self, heard_at: int) -> bool:
        """Before the outage it had said nothing for long enough, or for two heartbeats with the database there."""
        had_time = self.away_at - max(heard_at, self.there_at) >= HEARD_BY
        return had_time or self.away_at - heard_at >= REAP_AFTER

    def _check_delayed(self, process: str, heard_at: int) -> None:
        """A process that was stopped like all others must declare none dead; after a short stop it cannot tell."""
        just_now = self.at - self.delayed_at - self.delayed_by < REAP_AFTER / 2
        was_heard = self.delayed_at - heard_at < REAP_AFTER
        if just_now and was_heard and self.delayed_by >= REAP_AFTER and self.hosts[process] not in self.dead:
            self.say(f"process {process} was taken for dead by one who was stopped with it [11]")
