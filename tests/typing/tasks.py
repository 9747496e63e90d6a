"""What a type checker makes of tasks. Nothing here is run; `make types` reads it, as strictly as it can."""

from typing import assert_type

from penstock import Penstock
from penstock.job import Job

app = Penstock()


@app.task
def double(n: int) -> int:
    return 2 * n


@app.task(queue="slow")
async def add(a: int, b: int) -> int:
    return a + b


assert_type(double.enqueue(1), Job[int])
assert_type(double.enqueue(1).result(), int)
assert_type(add.enqueue(1, 2), Job[int])
assert_type(add.enqueue(1, 2).result(), int)
assert_type(add.enqueue_many([(1, 2)]), list[Job[int]])
assert_type(add.options(priority=3).enqueue(1, 2).result(), int)


async def waiting() -> None:
    assert_type(await (await add.enqueue_async(1, 2)).result_async(), int)
    assert_type(await add.enqueue(1, 2).result_async(), int)
