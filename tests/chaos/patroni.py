"""Patroni with etcd over three PostgreSQL servers: under load, whichever leads is killed, frozen or relieved.

Hosts and producer know all three by one URL. Commits wait for a synchronous standby, and only such a one is promoted,
so whatever was accepted must still be there.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import psycopg

from tests.chaos.campaign import Verdict, judge, settle
from tests.chaos.failover import work
from tests.chaos.strike import DATABASE, Strike
from tests.chaos.terms import Terms
from tests.chaos.world import World, bare_world
from tests.memory import in_memory
from tests.servers.patroni import Member, Patroni
from tests.waiting import eventually

ROUND = 15.0
"""Seconds of load before each fault, and after the last."""
AWAY = 30.0
"""Seconds for which a member is frozen: longer than its turn as leader lasts without a word (`ttl`, 20 s)."""


def patroni(
    asked: Terms, say: Callable[[str], None], every: float = ROUND, faults: int | None = None
) -> Verdict:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="penstock-chaos-", dir=in_memory())))
        folder.chmod(0o711)
        cluster = Patroni(folder)
        stack.callback(cluster.stop)
        cluster.start()
        with psycopg.connect(
            cluster.url("postgres") + "?target_session_attrs=read-write", autocommit=True
        ) as first:
            first.execute("CREATE DATABASE chaos")
        made = bare_world(replace(asked, database="postgres"), folder, cluster.url("chaos"), None, stack)
        made.start()
        say(f"{len(made.hosts)} hosts and {len(cluster.members)} servers are up; seed {asked.seed}")
        scene, began = Scene(made, cluster), time.monotonic()
        deck = scene.deck(Random(asked.seed))
        for number in range(faults or max(1, round(asked.minutes * 60 / (every + AWAY)))):
            work(every)
            fault = deck[number % len(deck)]
            say(f"{time.monotonic() - began:6.1f} s  {fault.__name__}")
            say(f"          another one leads after {scene.strike(fault):.1f} s")
        work(every)
        seconds = time.monotonic() - began
        settle(made, say, lambda: None)
        return judge(made, say, seconds)


@dataclass(slots=True)
class Scene:
    made: World
    cluster: Patroni

    def deck(self, chance: Random) -> list[Callable[[Member], None]]:
        """The shortest first: a run of one fault has that."""
        rest = [self.switch_over, self.kill_member, self.freeze_member]
        chance.shuffle(rest)
        return [self.kill_server, *rest]

    def strike(self, fault: Callable[[Member], None]) -> float:
        """Seconds until another member led; when this returns, all is whole again."""
        leader = self.cluster.leader()
        assert leader is not None
        struck = Strike(fault.__name__, DATABASE, time.monotonic(), alone=True)
        struck.at, struck.held = self.made.holding(self.made.pids())
        self.made.strikes.append(struck)
        fault(leader)
        eventually(lambda: self.cluster.leader() not in (None, leader), 90)
        struck.ended = time.monotonic()
        self._restore(fault, leader, struck)
        self.cluster.wait_until_whole()
        return struck.ended - struck.began

    def _restore(self, fault: Callable[[Member], None], member: Member, struck: Strike) -> None:
        if fault == self.kill_member:
            member.start()
        elif fault == self.freeze_member:
            work(max(0.0, struck.began + AWAY - time.monotonic()))
            member.thaw()

    def kill_server(self, leader: Member) -> None:
        leader.kill_server()

    def switch_over(self, leader: Member) -> None:
        self.cluster.switch_over()

    def kill_member(self, leader: Member) -> None:
        leader.kill()

    def freeze_member(self, leader: Member) -> None:
        leader.freeze()
