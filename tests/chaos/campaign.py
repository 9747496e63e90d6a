"""The campaign: load and faults for some minutes; then peace, until everything is done; then the verdict."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from tests.chaos import plan
from tests.chaos.checks import check
from tests.chaos.facts import Facts, gather
from tests.chaos.nemesis import CALM, Nemesis
from tests.chaos.report import report, version_of
from tests.chaos.terms import Terms
from tests.chaos.world import World, world
from tests.waiting import eventually

GAP = (1.5, 3.5)
LOOK_EVERY = 0.5
UNFINISHED = {
    "jobs": "SELECT count(*) FROM {job_states} WHERE status NOT IN ('succeeded', 'failed', 'cancelled', 'skipped')",
    "runs": "SELECT count(*) FROM {runs} WHERE ended_at IS NULL",
    "ticks": "SELECT count(*) FROM {schedules} WHERE due_at < {now} - 1000000",
    "timers": "SELECT count(*) FROM {timers}",
    "counters": "SELECT count(*) FROM counters WHERE done < target OR lock_token IS NOT NULL",
    "fleets": "SELECT count(*) FROM fleets WHERE done < 3 OR lock_token IS NOT NULL",
    "ships": "SELECT count(*) FROM ships WHERE done < 3 OR lock_token IS NOT NULL",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    facts: Facts
    wrong: list[str]
    report: str


def campaign(
    asked: Terms, say: Callable[[str], None], gap: tuple[float, float] = GAP, calm: float = CALM
) -> Verdict:
    with world(asked) as made:
        made.start()
        say(f"{len(made.hosts)} hosts are up; seed {asked.seed}")
        began = time.monotonic()
        nemesis = Nemesis(made, Random(asked.seed), gap, calm=calm)
        nemesis.say = lambda what: say(f"{time.monotonic() - began:6.1f} s  {what}")
        nemesis.run(asked.minutes * 60)
        nemesis.heal_all()
        seconds = time.monotonic() - began
        say(f"{time.monotonic() - began:6.1f} s  peace")
        settle(made, say, nemesis.look_after_hosts)
        return judge(made, say, seconds)


def judge(made: World, say: Callable[[str], None], seconds: float) -> Verdict:
    facts = gather(made)
    wrong = check(facts)
    if wrong:
        say(f"logs and ledgers are kept in {_kept(made)}")
    return Verdict(facts, wrong, report(made.terms, facts, wrong, _version(made), seconds))


def settle(made: World, say: Callable[[str], None], look_after: Callable[[], None]) -> None:
    """No more load; wait until all is done; stop all hosts in order."""
    made.stop_producer()

    def on_time() -> bool:
        look_after()
        time.sleep(LOOK_EVERY)
        return not unfinished(made)["ticks"]

    try:
        eventually(on_time, made.terms.drain_seconds)
    except AssertionError:
        made.oddities.append(f"schedules are still late after {made.terms.drain_seconds:g} s of peace")
    for name in plan.SCHEDULES:
        made.app.schedule(name).pause(why="the campaign is over")

    def done() -> bool:
        look_after()
        time.sleep(LOOK_EVERY)  # it costs the others time to be looked at
        return not any(unfinished(made).values()) and made.alive() == made.expected

    try:
        eventually(done, made.terms.drain_seconds)
    except AssertionError:
        left = {what: count for what, count in unfinished(made).items() if count}
        made.oddities.append(
            f"not done after {made.terms.drain_seconds:g} s of peace: {left}, {made.alive()} processes"
        )
    say("all is done; stopping the hosts")
    made.stop_hosts()


def unfinished(made: World) -> dict[str, int]:
    return made.app.database.read(
        lambda tx: {name: int(tx.rows(sql)[0][0]) for name, sql in UNFINISHED.items()}
    )


def _kept(made: World) -> str:
    """Copies of what the processes wrote, for the person who looks for the cause."""
    folder = Path(mkdtemp(prefix=f"penstock-chaos-{made.terms.seed}-"))
    for file in [*made.folder.glob("*.log"), *made.ledger.glob("*.jsonl"), *made.folder.glob("*.db")]:
        shutil.copy(file, folder)
    return str(folder)


def _version(made: World) -> str:
    if made.terms.database == "sqlite":
        return version_of(None)
    query = "SHOW server_version" if made.terms.database == "postgres" else "SELECT version()"
    name = "PostgreSQL" if made.terms.database == "postgres" else "MariaDB"
    return f"{name} {version_of(made.app.database.read(lambda tx: tx.rows(query)))}"
