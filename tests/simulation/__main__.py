"""`make simulate`: search seeds for a broken promise.

SEED=n plays one schedule and shows it; COUNT=n plays so many (2,000 unless told), from FIRST=n or from fresh seeds.
"""

from __future__ import annotations

import os
import sys
import time

from tests.simulation import memory, trace
from tests.simulation.schedule import theatre

COUNT = 2000
SHOW_EVERY = 500
WARM = 20
"""After so many schedules the memory is there that all others use, too."""


def main() -> int:
    if "SEED" in os.environ:
        return replay(int(os.environ["SEED"]))
    first = int(os.environ.get("FIRST", time.time_ns() // 1_000_000))
    return search(first, int(os.environ.get("COUNT", COUNT)))


def replay(seed: int) -> int:
    with theatre() as stage:
        verdict = stage.play(seed)
    say(trace.report(verdict))
    say(f"{verdict.steps} steps, {len(verdict.wrong)} things wrong, digest {trace.digest(verdict.world)}")
    return 1 if verdict.wrong else 0


def search(first: int, count: int) -> int:
    """Play schedules until one fails or all have passed; say how fast that went."""
    say(f"seeds from {first} to {first + count - 1}")
    began, busy, steps = time.monotonic(), time.process_time(), 0
    with theatre() as stage:
        for number, seed in enumerate(range(first, first + count), start=1):
            verdict = stage.play(seed)
            steps += verdict.steps
            if verdict.wrong:
                say(trace.report(verdict))
                say("once it is mended, keep the seed in tests/simulation/regressions.txt")
                return 1
            if number == WARM:
                memory.use_large_pages()
            if not number % SHOW_EVERY:
                say(_rate(number, time.monotonic() - began, time.process_time() - busy, steps))
        say(_rate(count, time.monotonic() - began, time.process_time() - busy, steps) + ", nothing wrong")
        per_thousand = sorted((kind, round(1000 * times / count)) for kind, times in stage.struck.items())
        say("in a thousand schedules: " + ", ".join(f"{kind} {times}" for kind, times in per_thousand))
    return 0


def _rate(count: int, seconds: float, busy: float, steps: int) -> str:
    return (
        f"{count} schedules of {steps // count} steps: {count / seconds * 60:.0f} a minute, "
        f"{count / busy * 60:.0f} a minute of one processor"
    )


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
