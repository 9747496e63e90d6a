"""The process in which a system works for the driver: `python -m bench.agent SYSTEM COMMAND URL MARKS OPTIONS`.

It says "ready" when everything is imported and connected, waits for a line, works, and answers with one line of
JSON. Times are CLOCK_MONOTONIC, the same for all processes of a machine.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from bench.field import CLASSES
from bench.marks import Marks
from bench.systems.base import STEPS, WARM_UP, HandWrittenSystem, PipelineSystem, SupervisedSystem, System

Answer = dict[str, Any]


async def install(system: System, _options: Answer) -> Answer:
    await system.install()
    return {}


async def fill(system: System, options: Answer) -> Answer:
    """In bulk, in chunks that a program would use."""
    left, chunk = options["count"], options.get("chunk", 10_000)
    began = time.monotonic()
    while left > 0:
        await system.enqueue_many(min(left, chunk))
        left -= chunk
    return {"seconds": time.monotonic() - began}


async def single(system: System, options: Answer) -> Answer:
    for number in range(WARM_UP):
        await system.enqueue(options.get("task", "noop"), number)
    began = time.monotonic()
    for number in range(options["count"]):
        await system.enqueue(options.get("task", "noop"), number)
    return {"seconds": time.monotonic() - began}


async def pick_up(system: System, options: Answer) -> Answer:
    """One job after the other to an idle worker; when each call began, and when it had committed.

    With a phase, by the clock: the producer of another system has its turns between these.
    """
    calls, commits = [], []
    gap, phase, start = options["gap"], options.get("phase"), time.monotonic()
    for number in range(options["count"]):
        if phase is None:
            await asyncio.sleep(gap * (0.75 + 0.5 * (number % 7) / 6))
        else:
            await asyncio.sleep(start + phase + gap * (number + (number % 7) / 70) - time.monotonic())
        calls.append(time.monotonic())
        await system.enqueue("mark", number)
        commits.append(time.monotonic())
    await asyncio.sleep(2)
    return {"calls": calls, "commits": commits}


async def pipelines(system: System, options: Answer) -> Answer:
    """Five steps, one run after the other. Where there are no pipelines, each step enqueues the next."""
    seconds = []
    for number in range(options["count"] + 5):
        began = time.monotonic()
        if options["chained"]:
            await system.enqueue("step", number * STEPS)
            ended = await _stamped(system, number + 1)
        elif options.get("commits"):
            await _by_hand(system).checkpoint(number)
            ended = time.monotonic()
        else:
            await _with_pipelines(system).run_pipeline(number)
            ended = time.monotonic()
        seconds.append(ended - began)
        await asyncio.sleep(0.02)
    return {"seconds": seconds[5:]}


async def _stamped(system: System, count: int) -> float:
    deadline = time.monotonic() + 30
    while system.marks.stamped < count and time.monotonic() < deadline:  # noqa: ASYNC110 - another process stamps
        await asyncio.sleep(0.0005)
    return max(moment for _, moment in system.marks.stamps())


async def start_pipelines(system: System, options: Answer) -> Answer:
    if options["chained"]:
        for number in range(options["count"]):
            await system.enqueue("step", number * STEPS)
    else:
        await _with_pipelines(system).start_pipelines(options["count"])
    return {}


async def fan(system: System, options: Answer) -> Answer:
    began = time.monotonic()
    await _with_pipelines(system).fan(options["width"])
    return {"seconds": time.monotonic() - began}


def _by_hand(system: System) -> HandWrittenSystem:
    if not isinstance(system, HandWrittenSystem):
        raise TypeError(f"{type(system).__name__} is not the hand-written loop")
    return system


def _with_pipelines(system: System) -> PipelineSystem:
    if not isinstance(system, PipelineSystem):
        raise TypeError(f"{type(system).__name__} has no pipelines")
    return system


async def work(system: System, _options: Answer) -> Answer:
    await system.work()
    return {}


async def supervise(system: System, _options: Answer) -> Answer:
    if not isinstance(system, SupervisedSystem):
        raise TypeError(f"{type(system).__name__} has no supervisor")
    system.supervise()
    return {}


COMMANDS = {
    "install": install,
    "fill": fill,
    "single": single,
    "pick_up": pick_up,
    "pipelines": pipelines,
    "start_pipelines": start_pipelines,
    "fan": fan,
    "work": work,
    "supervise": supervise,
}


def adapter(name: str) -> type[System]:
    module, _, kind = CLASSES[name].partition(":")
    found: type[System] = getattr(import_module(f"bench.systems.{module}"), kind)
    return found


def own_the_line() -> TextIO:
    """Our answers go where standard output went; whatever a library prints goes to standard error."""
    line = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return line


LINE = own_the_line()


def say(text: str) -> None:
    LINE.write(f"{text}\n")
    LINE.flush()


async def main(system: System, command: str) -> None:
    """Ends the process whatever happens: some libraries leave threads and tasks behind that never end."""
    try:
        if command != "install":
            await system.open()
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        say(json.dumps(await COMMANDS[command](system, system.options)))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    name, command, url, folder, text = sys.argv[1:]
    options = json.loads(text)
    logging.disable(logging.WARNING)  # nobody's log lines are measured
    system = adapter(name)(url, Marks(Path(folder), options.get("slot", 0)), options)
    system.run(main(system, command))
