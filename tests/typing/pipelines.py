"""Right uses of pipelines and of values between steps, as type checkers see them. Nothing here is run."""

from collections.abc import Coroutine, Iterator
from typing import Any, assert_type

from penstock import Penstock, StepValue, first, flow, switch, wait_for
from penstock.pipelines.run import Run, Step

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


@app.task
def total(numbers: Iterator[int]) -> int:
    return sum(numbers)


@app.task
def pages(count: int) -> Iterator[int]:
    yield from range(count)


@app.task
def pair(item: tuple[str, int]) -> str:
    return item[0]


@app.task
def three(a: int, b: str, c: float) -> str:
    return f"{a}{b}{c}"


@app.pipeline
def plain(days: int) -> StepValue[int]:
    found = ids(days)
    assert_type(found, list[int])
    user = load.map(found)
    assert_type(user, StepValue[dict[str, int]])
    named = name(user)
    assert_type(named, StepValue[str])
    assert_type(named.collect(), StepValue[list[str]])
    assert_type(load.options(key="again")(report(named.collect()), deep=True), StepValue[dict[str, int]])
    return report(named.collect(), note=switch(named.collect(), {"x": name}, otherwise=None))


@app.pipeline(on_failure="continue", deadline=60, name="nested")
def nested(rows: list[int]) -> object:
    row = ids.map(rows)
    inner = name(load.map(row)).collect()
    assert_type(inner, StepValue[list[str]])
    assert_type(report(inner).collect(), StepValue[list[int]])
    assert_type(report(names=inner), StepValue[int])
    assert_type(report([name(load(1)), name(load.map(row)).collect()]), StepValue[int])
    assert_type(load.map([1, report(inner)]), StepValue[dict[str, int]])
    assert_type(three(report(inner), "b", 1.5), StepValue[str])
    assert_type(total(report(inner).collect()), StepValue[int])
    assert_type(pages(report(inner)), StepValue[list[int]])
    assert_type(load.map(pages(report(inner))), StepValue[dict[str, int]])
    assert_type(pair.map(load(report(inner))), StepValue[str])
    assert_type(first(report(inner), plain(1)), StepValue[int])
    return first(report(inner).collect(), plain(1), wait_for("go"), count=2)


@app.pipeline
def single(n: int) -> list[int]:
    return ids(n)


@app.pipeline
def counted(n: int) -> str:
    return name({"n": n})


fluent = app.flow("fluent").start(ids).expand(load).chain(name).collapse(report)
divided = app.flow("divided").start(ids).expand(flow(load).chain(name)).divide(report, report).combine(report)
of_children = app.flow("child").start(plain).chain(single)


def used() -> None:
    assert_type(plain.trigger(30), Run[int])
    assert_type(plain.trigger(days=30).result(timeout=1), int)
    assert_type(plain.options(key="one", labels=["a"]).trigger(30), Run[int])
    assert_type(plain.trigger_many([(1,)]), list[Run[int]])
    assert_type(nested.trigger([1]).result(), Any)
    assert_type(counted.trigger(1).result(), str)
    assert_type(fluent.trigger(3).result(), int)
    assert_type(plain.trigger(1).steps(), list[Step])
    assert_type(app.run("1"), Run)
    assert_type(ids(3), list[int])
    loading: Coroutine[Any, Any, dict[str, int]] = load(3)
    loading.close()


async def used_async() -> None:
    assert_type(await (await plain.trigger_async(1)).result_async(), int)
