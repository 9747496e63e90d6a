"""The failover: under load, the primary is killed and its synchronous standby promoted, again and again.

Hosts and producer know both by one URL and follow by themselves. Whatever was accepted must still be there: a commit is
acknowledged only when the standby has it.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.chaos.campaign import Verdict, judge, settle
from tests.chaos.standby import Pair
from tests.chaos.strike import DATABASE, Strike
from tests.chaos.terms import Terms
from tests.chaos.world import World, bare_world
from tests.memory import in_memory
from tests.waiting import eventually

ROUND = 20.0
"""Seconds of load before each failover, and after the last."""


def failover(asked: Terms, say: Callable[[str], None], every: float = ROUND) -> Verdict:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="penstock-chaos-", dir=in_memory())))
        folder.chmod(0o711)
        pair = Pair(folder)
        stack.callback(pair.stop)
        pair.primary.create_database("chaos")
        pair.follow()
        made = bare_world(asked, folder, pair.url("chaos"), None, stack)
        made.start()
        say(f"{len(made.hosts)} hosts are up; seed {asked.seed}")
        began = time.monotonic()
        rounds = max(1, round(asked.minutes * 60 / every) - 1)
        for number in range(rounds):
            work(every)
            say(f"{time.monotonic() - began:6.1f} s  failover {number + 1}")
            _strike(made, pair)
        work(every)
        seconds = time.monotonic() - began
        settle(made, say, lambda: None)
        return judge(made, say, seconds)


def _strike(made: World, pair: Pair) -> None:
    strike = Strike("failover", DATABASE, time.monotonic(), alone=True)
    strike.at, strike.held = made.holding(made.pids())
    made.strikes.append(strike)
    pair.fail_over()
    strike.ended = time.monotonic()
    pair.follow()


def work(seconds: float) -> None:
    """Let the load go on for so long."""
    end = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > end, seconds + 5)
