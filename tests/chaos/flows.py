"""The pipelines that the hosts run: fan-out and fan-in, switch, failure strategies, callbacks, waits, child runs."""

from typing import Any

import penstock
from penstock import Retry, switch, wait_for
from tests.chaos.shop import FOREVER, app, begin, ledger, work

PATIENCE = 8.0
"""How long an approval waits for its signal."""


# Callbacks: each must be told exactly once of every run.


@app.task(name="completed", **FOREVER)
def completed(run_id: str, status: str) -> str:
    begin()
    return run_id


@app.task(name="ended_badly", **FOREVER)
def ended_badly(run_id: str, status: str) -> str:
    begin()
    return run_id


# Steps


@app.task(name="spread", **FOREVER)
def spread(number: int, width: int) -> list[str]:
    begin()
    return [f"{number}.{index}" for index in range(width)]


@app.task(name="left", **FOREVER)
async def left(name: str) -> str:
    await work(0.2)
    return f"{name}a"


@app.task(name="right", **FOREVER)
def right(name: str) -> str:
    begin()
    return f"{name}b"


@app.task(name="pair", **FOREVER)
def pair(a: str, b: str) -> str:
    begin()
    return f"{a}+{b}"


@app.task(name="gather", **FOREVER)
def gather(values: list[str]) -> list[str]:
    begin()
    ledger.write("join", run=penstock.current().run_id, values=values)
    return values


@app.task(name="tell", **FOREVER)
async def tell(text: str) -> str:
    await work(0.3)
    return text


@app.task(name="both", **FOREVER)
def both(values: list[str]) -> list[str]:
    begin()
    return values


@app.task(name="modulo", **FOREVER)
def modulo(number: int) -> str:
    begin()
    return str(number % 3)


@app.task(name="word", **FOREVER)
def word(number: int, text: str) -> str:
    begin()
    return f"{text} {number}"


@app.task(name="finish", **FOREVER)
def finish(value: str | None) -> str | None:
    begin()
    return value


@app.task(name="fail", retries=Retry(max=1, delay=0.1), max_crashes=None)
def fail(number: int) -> str:
    begin()
    raise ValueError("as it must")


@app.task(name="compare", **FOREVER)
def compare(value: str | None, number: int) -> str:
    begin()
    return f"{value} and {number}"


# Pipelines


@app.pipeline(name="enrich", on_complete=completed)
def enrich(number: int, width: int) -> Any:
    name = tell.map(spread(number, width))
    pairs: Any = pair(left(name), right(name))
    return gather(pairs.collect())


@app.pipeline(name="choose", on_complete=completed)
def choose(number: int) -> Any:
    arms = {
        "0": lambda: word(number, "left"),
        "1": lambda: word.options(key="after", after=[tell("one")])(number, "right after"),
    }
    return finish(switch(modulo(number), arms, otherwise=None))


@app.pipeline(name="halting", on_complete=completed, on_halt=ended_badly)
def halting(number: int) -> Any:
    return compare(fail(number), number)


@app.pipeline(name="continuing", on_complete=completed, on_failure=["continue", ended_badly])
def continuing(number: int) -> Any:
    compare(fail(number), number)
    return word(number, "apart")


@app.pipeline(name="ignoring", on_complete=completed, on_failure=["ignore", ended_badly])
def ignoring(number: int) -> Any:
    return finish(compare(fail(number), number))


@app.pipeline(name="optional", on_complete=completed, on_halt=ended_badly)
def optional(number: int) -> Any:
    return finish(compare(fail.options(optional=True)(number), number))


@app.pipeline(name="approval", on_complete=completed)
def approval(number: int) -> Any:
    return finish(wait_for("approve", timeout=PATIENCE, default="refused", after=[modulo(number)]))


@app.pipeline(name="inner", on_complete=completed)
def inner(number: int) -> Any:
    return word(number, "inner")


@app.pipeline(name="nested", on_complete=completed)
def nested(number: int) -> Any:
    return both([inner(number), word.options(key="outer")(number, "outer")])


@app.pipeline(name="round", on_complete=completed)
def tick_round() -> Any:
    return finish(tell("round"))


@app.pipeline(name="careful_round", on_complete=completed)
def careful_round() -> Any:
    return finish(tell(tell.options(key="before")("careful")))
