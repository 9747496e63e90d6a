"""`make chaos`: DATABASE=postgres|mariadb|sqlite MINUTES=5 SEED=n; SCENARIO=failover, patroni or galera for the others.

The exit code is 0 if all promises were kept, 1 if one was broken, 3 if the scenario cannot be run on this machine.
"""

import os
import sys
from collections.abc import Callable

from tests.chaos.campaign import Verdict, campaign
from tests.chaos.failover import failover
from tests.chaos.galera import galera
from tests.chaos.patroni import patroni
from tests.chaos.terms import Terms
from tests.servers.errors import Unavailable

SCENARIOS: dict[str, Callable[[Terms, Callable[[str], None]], Verdict]] = {
    "campaign": campaign,
    "failover": failover,
    "patroni": patroni,
    "galera": galera,
}


def main() -> int:
    asked = Terms.from_environment()
    scenario = (sys.argv[1:] or [os.environ.get("SCENARIO") or "campaign"])[0]
    if scenario not in SCENARIOS:
        say(f"there is no scenario {scenario!r}: use {' or '.join(SCENARIOS)}")
        return 2
    try:
        verdict = SCENARIOS[scenario](asked, say)
    except KeyboardInterrupt:
        say("stopped")
        return 130
    except Unavailable as missing:
        say(f"this cannot be run here: {missing}")
        return 3
    say("")
    say(verdict.report)
    return 1 if verdict.wrong else 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
