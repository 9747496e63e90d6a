"""The verdict: the history against the rules, the tables at the end, and what each workload says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.runtime.worker import Worker
from tests.simulation import keeping, run_model
from tests.simulation.hosts import WorkerHost
from tests.simulation.moves import CHILDREN, TERMINAL
from tests.simulation.story import Story
from tests.simulation.workloads import Workload

CANCELLATIONS_OF_THE_DEAD = """
FROM penstock_cancellations WHERE process_id NOT IN (SELECT id FROM penstock_processes)
"""
LEFT_OVER = {
    "claims": "SELECT token FROM penstock_claims",
    "availabilities": "SELECT job_id FROM penstock_availabilities",
    "scheduled": "SELECT job_id FROM penstock_scheduled",
    "parked": "SELECT job_id FROM penstock_parked",
    "cancellations of the dead": f"SELECT job_id {CANCELLATIONS_OF_THE_DEAD}",
}
STANDING = "SELECT job_id, status FROM penstock_job_states"
# Of a child run the step that failed is a dead letter, and not the step that waited for the run.
FAILED = f"""
SELECT s.job_id, j.run_id, d.job_id IS NOT NULL FROM penstock_job_states s JOIN penstock_jobs j ON j.id = s.job_id
LEFT JOIN penstock_dead_letters d ON d.job_id = s.job_id
WHERE (s.status = 'failed') <> (d.job_id IS NOT NULL) AND COALESCE(j.node, '') NOT LIKE '@%'
  AND j.task NOT IN {CHILDREN}
"""


def check(story: Story, stuck: str | None, workloads: Sequence[Workload]) -> list[str]:
    """Everything that is wrong with a schedule; nothing if all promises were kept."""
    story.model.read(story.history)
    wrong = list(story.model.wrong)
    wrong += [f"a thread ended: {died}" for died in story.died]
    wrong += _end(story, stuck)
    wrong += _accepted(story)
    wrong += run_model.check(story)
    wrong += keeping.check(story)
    for workload in workloads:
        wrong += workload.check(story)
    return wrong


def _end(story: Story, stuck: str | None) -> Iterator[str]:
    """In the end everything is over, and nothing is left lying about."""
    if stuck is not None:
        yield stuck
    for job_id, status in story.rows(STANDING):
        if status not in TERMINAL:
            yield f"{job_id} is still {status} at the end"
        if story.model.states[str(job_id)].status != status:
            yield f"{job_id} is {status}, and no process made it so"
    for table, query in LEFT_OVER.items():
        if rows := story.rows(query):
            yield f"left in {table} at the end: {', '.join(str(row[0]) for row in rows)}"
    for host in story.hosts:
        if isinstance(host, WorkerHost) and host.alive and host.worker is not None:
            yield from _accounts(host.name, host.worker)
    excused = {fact[3] for fact in story.facts("stopping") if fact[4]} | _stopped_in_an_outage(story)
    for host in story.hosts:
        # Who is told to hurry, or finds no database to say good-bye to, may leave its row to others.
        in_order = isinstance(host, WorkerHost) and host.gone and host.name not in excused
        closed = in_order and host.worker is not None  # type: ignore[attr-defined]
        if closed and any(story.facts("closed")) and host.worker.identity.id in story.model.processes:  # type: ignore[attr-defined]
            yield f"{host.name} has stopped in order, and its process row is there"
    for _, who, _, reconciler, id in story.facts("waited for nobody"):
        yield f"{who}: the stop waits for {reconciler} {id}, whose handler has ended"
    for job_id, run_id, listed in story.rows(FAILED):
        if listed or run_id is None or job_id not in story.model.put_away:
            yield f"{job_id}: dead letters and failed jobs are not the same"


def _stopped_in_an_outage(story: Story) -> set[str]:
    """Who was stopping while the database was away."""
    outages = [(fact[0], fact[3]) for fact in story.facts("outage")]
    left = {fact[3]: fact[0] for fact in story.facts("left")}
    return {
        fact[3]
        for fact in story.facts("stopping")
        if any(began <= left.get(fact[3], began) and fact[0] <= over for began, over in outages)
    }


def _accounts(name: str, worker: Worker) -> Iterator[str]:
    """What a worker believes to hold and to have room for agrees with what there is."""
    if worker.source.holdings.count:
        yield f"{name} believes to hold {worker.source.holdings.tokens}"
    if worker.dispatcher.overdue < 0:
        yield f"{name} counts {worker.dispatcher.overdue} handlers that do not end"


KEYS_FOR_A_WHILE = ("single", "latest")
"""Tasks whose keys go from one job to the next; see `workloads.rules`."""


def _accepted(story: Story) -> Iterator[str]:
    """What was accepted is there; one key names one job."""
    jobs = story.model.jobs
    keys: dict[tuple[str, str], str] = {}
    for at, who, _, job_id, task, key in story.facts("accepted"):
        if job_id not in jobs:
            yield f"{at} {who}: {job_id} was accepted and is not there"
        if key is None or task in KEYS_FOR_A_WHILE or job_id in story.model.pruned:
            continue  # with a job, its key is forgotten
        if keys.setdefault((task, key), job_id) != job_id:
            yield f"{at} {who}: key {key} of {task} names {keys[task, key]} and {job_id}"
    seen: dict[tuple[str, str], str] = {}
    for job in jobs.values():
        if job.key is None or job.task in KEYS_FOR_A_WHILE or job.id in story.model.pruned:
            continue
        if seen.setdefault((job.task, job.key), job.id) != job.id:
            yield f"key {job.key} of {job.task} has made {seen[job.task, job.key]} and {job.id}"
