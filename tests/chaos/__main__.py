"""`make chaos`: DATABASE=postgres|mariadb|sqlite MINUTES=5 SEED=n; SCENARIO=failover for the other one."""

import os
import sys

from tests.chaos.campaign import campaign
from tests.chaos.terms import Terms


def main() -> int:
    asked = Terms.from_environment()
    scenario = (sys.argv[1:] or [os.environ.get("SCENARIO") or "campaign"])[0]
    if scenario != "campaign":
        say(f"there is no scenario {scenario!r}")
        return 2
    try:
        verdict = campaign(asked, say)
    except KeyboardInterrupt:
        say("stopped")
        return 130
    say("")
    say(verdict.report)
    return 1 if verdict.wrong else 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
