"""An app with a pipeline that has a bit of everything, for workers and for the test that watches them."""

from typing import Any

from penstock import Penstock, switch


def make_app(url: str) -> Penstock:
    app = Penstock(url, inline_fanout=8)

    @app.task(name="numbers", max_crashes=None)
    def numbers(count: int) -> list[int]:
        return list(range(count))

    @app.task(name="double", max_crashes=None)
    def double(number: int) -> int:
        return 2 * number

    @app.task(name="add", max_crashes=None)
    def add(a: int, b: int) -> int:
        return a + b

    @app.task(name="total", max_crashes=None)
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.pipeline(name="child")
    def child(count: int) -> Any:
        return total(double.map(numbers(count)).collect())

    @app.pipeline(name="parent")
    def parent(count: int) -> Any:
        number = double.map(numbers(count))
        added: Any = add(double(number), number)
        summed = total(added.collect())
        return total([summed, child(count), switch(summed, {"0": None}, otherwise=double)])

    return app
