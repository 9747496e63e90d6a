"""What a type checker makes of pipelines. Nothing here is run; `make types` reads it, as strictly as it can."""

from collections.abc import Coroutine
from typing import Any, assert_type

from penstock import Penstock, first, switch, wait_for
from penstock.pipelines.pipeline import GraphPipeline
from penstock.pipelines.run import Run
from penstock.values.typed_json.signature import StepValue

app = Penstock()


@app.task
def ids(days: int) -> list[int]:
    return [days]


@app.task(queue="slow")
async def load(id: int, deep: bool = False) -> dict[str, int]:
    return {"id": id}


@app.task
def name(user: dict[str, int]) -> str:
    return str(user["id"])


@app.task
def report(names: list[str], note: str = "") -> int:
    return len(names)


@app.pipeline
def plain(days: int) -> object:
    found = ids(days)
    assert_type(found, list[int])
    user = load.map(found)
    assert_type(user, StepValue[dict[str, int]])
    named = name(user)
    assert_type(named, StepValue[str])
    assert_type(named.collect(), StepValue[list[str]])
    assert_type(load.options(key="again")(name(user), deep=True), StepValue[dict[str, int]])
    return report(named.collect(), note=switch(named.collect(), {"x": name}, otherwise=None))


@app.pipeline(on_failure="continue", deadline=60)
def nested(rows: list[list[int]]) -> object:
    row = ids.map(rows)
    inner = name(load.map(row)).collect()
    assert_type(inner, StepValue[list[str]])
    assert_type(report(inner).collect(), StepValue[list[int]])
    return first(report(inner).collect(), plain(1), wait_for("go"))


def used() -> None:
    assert_type(plain, GraphPipeline)
    assert_type(plain.options(key="one").trigger(30), Run)
    assert_type(ids(3), list[int])
    loading: Coroutine[Any, Any, dict[str, int]] = load(3)
    loading.close()
    assert_type(ids.enqueue(3).result(), list[int])
    assert_type(load.enqueue(3).result(), dict[str, int])
    ids.enqueue("three")  # type: ignore[arg-type]
