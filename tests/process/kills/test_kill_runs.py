"""pipelines/advance: SIGKILL between any two statements of what moves a run, by real workers. Invariants 3 to 7, 10
and 11.

As in `test_kill_points` the points are not listed: a first worker passes them undisturbed, and every visit counts. Then
one worker is killed at each, on a queue of its own; what all of them left is for a last one. On PostgreSQL settles
presume (decision 018), and on every database the next step is held at once (012): `drain` does neither.
"""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.pipelines.pipeline import Pipeline
from penstock.pipelines.run import Run
from penstock.testing import drain
from penstock.values.status import RunStatus
from tests.process import run_plays
from tests.process.forks import killed_at, windows_of
from tests.process.history import Job, check, declare_dead, recover, rows
from tests.process.run_plays import LATER
from tests.process.scenes import Part, make_app

pytestmark = pytest.mark.process

ALONE: dict[str, object] = {"concurrency": 1, "batch": 1}
"""One step at a time; the next one is claimed with the settle of the one before."""
TWO_PLACES: dict[str, object] = {"concurrency": 2, "batch": 2}
"""After a look at the queue there is room, so what follows is held without another."""


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    return tmp_path / "diary"


@pytest.fixture
def shop(database_url: str, diary: Path) -> Penstock:
    return make_app(database_url, str(diary), heartbeat_interval=0.1)


class Killer:
    """Lets workers play a scene, each in a queue of its own, and kills them in it."""

    def __init__(self, shop: Penstock, url: str, diary: Path, folder: Path) -> None:
        self.shop, self.url, self.diary, self.folder = shop, url, diary, folder
        self.struck: dict[str, str] = {}
        """Where the worker of each queue was killed."""

    def part(self, queue: str, scene: str, settings: dict[str, object]) -> Part:
        return Part(self.url, scene, queue, str(self.diary), settings=settings)

    def windows(self, stages: str, scene: str, settings: dict[str, object]) -> list[str]:
        found = windows_of(self.part("undisturbed", scene, settings), self.folder, stages)
        assert {window.partition(".")[0] for window in found} == set(stages.split()), "every stage is passed"
        return found

    def kill(self, window: str, queue: str, scene: str, settings: dict[str, object]) -> None:
        if killed_at(window, self.part(queue, scene, settings)):
            self.struck[queue] = window
            return
        # How often a worker looks and finds nothing depends on how busy the machine is.
        assert window.startswith("claim."), f"no process came to {window}"

    def kill_everywhere(
        self, stages: str, prepare: Callable[[str], None], settings: dict[str, object], every: int = 1
    ) -> set[str]:
        """Kill one worker in every window of these stages, or in some at even distances; the windows there are."""
        prepare("undisturbed")
        found = self.windows(stages, "advance", settings)
        for number, window in enumerate(found[::every]):
            prepare(f"kill-{number}")
            self.kill(window, f"kill-{number}", "advance", settings)
        declare_dead(self.shop)
        return set(found)


@pytest.fixture
def killer(shop: Penstock, diary: Path, tmp_path: Path, database_url: str) -> Killer:
    return Killer(shop, database_url, diary, tmp_path)


def test_a_run_may_be_killed_anywhere(
    shop: Penstock, killer: Killer, diary: Path, database_kind: str
) -> None:
    runs: dict[str, Run] = {}

    def prepare(queue: str) -> None:
        runs[queue] = run_plays.everything(shop, queue).trigger(1)
        runs[queue].then(run_plays.sequel(shop, queue), 5)

    presumed = "presume" if database_kind == "postgres" else ""
    stages = f"settle {presumed} advance hydrate enqueue timer chain_start start"
    killer.kill_everywhere(stages, prepare, TWO_PLACES, every=1 if presumed else 2)
    recover(shop)
    jobs = check(shop, diary)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    for queue, run in runs.items():
        assert run.result(0) == run_plays.SUM, killer.struck.get(queue)
        assert each_step_once(shop, run) == 5, killer.struck.get(queue)
        assert told(shop, run) == {"on_complete": "succeeded", "on_success": "succeeded"}, killer.struck.get(
            queue
        )
        assert [following.result(0) for following in following_runs(shop, run)] == [10], killer.struck.get(
            queue
        )
    spent_no_more_than_a_crash(jobs, killer.struck)
    nothing_is_left(shop)


def test_a_fork_may_be_killed_anywhere(shop: Penstock, killer: Killer, diary: Path) -> None:
    """Actors: a worker that keeps the steps before `in_turn` and redoes the others, and the worker that comes after it.

    Each kept step is settled in the transaction that claims it, through the fence of that claim; each redone step is
    settled like any other. So a worker may die between any two statements: no step is there twice, none is left, and
    none that was finished before the fork is done again.
    """
    forks: dict[str, Run] = {}

    def prepare(queue: str) -> None:
        old = run_plays.everything(shop, queue).trigger(1)
        drain(shop, queues=queue)
        assert old.result(0) == run_plays.SUM
        forks[queue] = old.fork("in_turn")

    killer.kill_everywhere("claim hydrate settle advance", prepare, ALONE, every=3)
    recover(shop)
    jobs = check(shop)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    done = Counter(line.split()[0] for line in diary.read_text().splitlines())
    for queue, fork in forks.items():
        assert fork.result(0) == run_plays.SUM, killer.struck.get(queue)
        assert each_step_once(shop, fork) == 5, killer.struck.get(queue)
        called = sorted(step.key for step in fork.steps() if done[step.id])
        assert called == ["in_turn", "in_turn", "total"], "a kept step calls no handler"
    nothing_is_left(shop)


SURE = {"timer": 6, "admit": 3, "start": 3}
"""How often three runs in line come to each point, at least."""


def test_the_admission_of_the_next_run_may_be_killed_anywhere(
    shop: Penstock, killer: Killer, diary: Path
) -> None:
    """Between the end of a run and the start of the next in line; one is under way at any time."""
    runs: dict[str, list[Run]] = {}

    def prepare(queue: str) -> None:
        runs[queue] = run_plays.one_at_a_time(shop, queue).trigger_many([(1,), (2,), (3,)])

    prepare("undisturbed")
    found = killer.windows("timer admit start", "advance", TWO_PLACES)
    # The end of the third run sets a timer as well; the worker may have left by then.
    sure = [window for window in found if int(window.partition(":")[2]) <= SURE[window.partition(".")[0]]]
    for number, window in enumerate(sure[::2]):
        prepare(f"kill-{number}")
        killer.kill(window, f"kill-{number}", "advance", TWO_PLACES)
    declare_dead(shop)
    recover(shop)
    check(shop, diary)
    for queue, some in runs.items():
        assert [run.result(0) for run in some] == [2, 4, 6], killer.struck.get(queue)
        times = rows(
            shop,
            "SELECT started_at, ended_at FROM {runs} WHERE pipeline = :name ORDER BY id",
            name=f"line-{queue}",
        )
        assert times == sorted(times), killer.struck.get(queue)
        assert all(began >= ended for (_, ended), (began, _) in pairwise(times)), killer.struck.get(queue)
    shop.engine.work_off()  # the last ends have set timers to admit, and none is in line
    nothing_is_left(shop)


@pytest.mark.one_database
def test_the_usual_end_of_a_run_may_be_killed_anywhere(
    shop: Penstock, killer: Killer, diary: Path, database_kind: str
) -> None:
    """The runs above have others that follow them, so their end is presumed wrongly; the end of these is not."""
    if database_kind != "postgres":
        pytest.skip("nothing is presumed here")
    runs: dict[str, Run] = {}

    def prepare(queue: str) -> None:
        runs[queue] = run_plays.sequence(shop, queue).trigger(1)

    windows = killer.kill_everywhere("settle presume advance enqueue", prepare, TWO_PLACES)
    assert {"presume.1:2", "enqueue.commit:1", "enqueue.committed:1"} <= windows
    assert not {"settle.1:3", "settle.2:1"} & windows, "nothing was presumed wrongly"
    recover(shop)
    jobs = check(shop, diary)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    for queue, run in runs.items():
        assert run.result(0) == 4, killer.struck.get(queue)
        assert each_step_once(shop, run) == 2, killer.struck.get(queue)
        assert told(shop, run) == {"on_complete": "succeeded", "on_success": "succeeded"}
    spent_no_more_than_a_crash(jobs, killer.struck)
    nothing_is_left(shop)


@pytest.mark.one_database
def test_a_run_may_be_killed_anywhere_after_a_wrong_presumption(
    shop: Penstock, killer: Killer, diary: Path, database_kind: str
) -> None:
    if database_kind != "postgres":
        pytest.skip("nothing is presumed here")
    runs: dict[str, list[Run]] = {}

    def prepare(queue: str) -> None:
        plays = (run_plays.refused(shop, queue), run_plays.sequence(shop, queue))
        runs[queue] = [pipeline.trigger(1) for pipeline in plays]

    windows = killer.kill_everywhere("settle presume advance hydrate", prepare, ALONE, every=2)
    assert "presume.1:1" in windows
    assert not {"presume.1:2", "presume.commit:1"} & windows, "refused once, and nothing presumed after that"
    assert {"settle.1:4", "settle.2:3"} <= windows
    for refused, _ in runs.values():
        if refused.status is RunStatus.PAUSED:  # what was in the hands of the dead would not be done again
            refused.resume()
    recover(shop)
    jobs = check(shop, diary)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    for queue, (refused, sequence) in runs.items():
        assert (refused.result(0), sequence.result(0)) == (1, 4), killer.struck.get(queue)
        assert (each_step_once(shop, refused), each_step_once(shop, sequence)) == (1, 2), killer.struck.get(
            queue
        )
        assert told(shop, sequence) == {"on_complete": "succeeded", "on_success": "succeeded"}
    spent_no_more_than_a_crash(jobs, killer.struck)
    nothing_is_left(shop)


def test_a_halt_may_be_killed_anywhere(shop: Penstock, killer: Killer, diary: Path) -> None:
    runs: dict[str, Run] = {}

    def prepare(queue: str) -> None:
        runs[queue] = run_plays.halting(shop, queue).trigger(1)
        runs[queue].then(run_plays.sequel(shop, queue), 5)

    # The statements are those of test_kill_windows, which kills at each: here it is by a signal.
    killer.kill_everywhere("settle advance timer sweep enqueue chain_start", prepare, ALONE, every=4)
    recover(shop)
    jobs = check(shop, diary)
    for queue, run in runs.items():
        assert (run.status, run.reasons) == (RunStatus.HALTED, ["retries_exhausted"]), killer.struck.get(
            queue
        )
        assert Counter(step.status.value for step in run.steps()) == {"failed": 1, "skipped": 2}
        assert told(shop, run) == {"on_complete": "halted", "on_halt": "halted"}, killer.struck.get(queue)
        assert [following.status for following in following_runs(shop, run)] == [RunStatus.SKIPPED]
    assert {job["attempts"].count("errored") for job in jobs.values() if job["task"] == "fails"} == {1}
    spent_no_more_than_a_crash(jobs, killer.struck)
    nothing_is_left(shop)


@pytest.mark.parametrize("play", [run_plays.delayed, run_plays.waiting])
def test_giving_up_a_run_may_be_killed_anywhere(
    shop: Penstock, killer: Killer, monkeypatch: pytest.MonkeyPatch, play: Callable[..., Pipeline]
) -> None:
    """A run that cannot be planned is given up in one transaction, and its timer is forgotten in another.

    The next process may have the same trouble, or not.
    """
    unharmed = play(shop, "undisturbed").trigger(1)
    windows = killer.windows("advance enqueue put_off", "fall_ill", ALONE)
    assert (unharmed.status, unharmed.reasons) == (RunStatus.HALTED, ["advancement_failed"])
    # First the timer is put off, then the run is given up, then the timer is forgotten.
    ends = [(number, window) for number, window in enumerate(windows) if ".committed" in window]
    given_up = next(number for number, window in ends if not window.startswith("put_off"))
    forgotten = max(number for number, window in ends if window.startswith("put_off"))
    assert given_up < forgotten
    for number, window in list(enumerate(windows))[given_up - 3 : forgotten + 1]:
        run = play(shop, f"kill-{number}").trigger(1)
        killer.kill(window, f"kill-{number}", "fall_ill", ALONE)
        is_ill = number % 2 == 0
        with monkeypatch.context() as patch:
            for illness in run_plays.ILLNESS if is_ill else ():
                patch.setattr(*illness)
            recover(shop)
        if is_ill or number >= given_up:
            assert (run.status, run.reasons) == (RunStatus.HALTED, ["advancement_failed"]), window
            assert told(shop, run) == {"on_complete": "halted"}, window
        else:
            assert run.result(0) == 4, window
            assert told(shop, run) == {"on_complete": "succeeded", "on_success": "succeeded"}, window
        each_step_once(shop, run)
    declare_dead(shop)
    recover(shop)
    jobs = check(shop)
    assert {job["crash_count"] for job in jobs.values()} == {0}
    nothing_is_left(shop)


def each_step_once(shop: Penstock, run: Run) -> int:
    """How many steps there are; no place in the definition has two, and no join is left open."""
    steps = run.steps()
    assert len({(step.key, step.path) for step in steps}) == len(steps)
    left = rows(
        shop, "SELECT node FROM {joins} WHERE run_id = :run AND (still_open <> 0 OR NOT fired)", run=run.id
    )
    assert not left
    return len(steps)


def told(shop: Penstock, run: Run) -> dict[str, str]:
    """What was told of the end of a run, by event; each job of these was enqueued once, and has done its work once."""
    query = (
        "SELECT j.job_key, e.output FROM {jobs} j JOIN {executions} e ON e.job_id = j.id "
        "WHERE j.task = 'hear' AND e.outcome = 'succeeded' AND j.payload LIKE :run"
    )
    found = rows(shop, query, run=f"%{run.id}%")
    heard = [(key.partition(":")[0], output.strip('"').split()[1]) for key, output in found]
    assert len(heard) == len(dict(heard))
    return dict(heard)


def following_runs(shop: Penstock, run: Run) -> list[Run]:
    found = rows(shop, "SELECT downstream_id FROM {chains} WHERE upstream_id = :run", run=run.id)
    return [shop.run(str(id)) for (id,) in found]


def spent_no_more_than_a_crash(jobs: dict[str, Job], struck: dict[str, str]) -> None:
    """A step that was in the hands of the dead has spent a crash, no other anything. Outcomes that count cost none."""
    assert {job["crash_count"] for job in jobs.values()} == {0, 1}
    assert {job["retry_count"] for job in jobs.values()} == {0}
    crashed = Counter(job["queue"] for job in jobs.values() if job["crash_count"])
    assert not crashed["undisturbed"]
    assert not crashed[LATER]
    for queue, window in struck.items():
        if window.startswith("settle") and not window.startswith("settle.committed"):
            assert crashed[queue], ("what was being settled was not", window)


def nothing_is_left(shop: Penstock) -> None:
    """But for sweeps that are not due yet: they find nothing to do."""
    for table in ("advancements", "claims", "availabilities", "scheduled", "cancellations"):
        assert rows(shop, f"SELECT count(*) FROM {{{table}}}")[0][0] == 0, table
    assert rows(shop, "SELECT kind FROM {timers} WHERE kind <> 'sweep'") == []
