"""An app with pipelines, as a module that the command line can import and as one that a test can drain."""

from typing import Any

import penstock
from penstock import Penstock, wait_for

MODULE = """
import os
from tests.conformance.operate.run_shop import make

app = make(os.environ["SHOP_DATABASE"])
pack, approve, limited = app.pipelines["pack"], app.pipelines["approve"], app.pipelines["limited"]
torn = app.pipelines["torn"]
box = app.tasks["box"]
number = 3
"""


def make(url: str, old: bool = False) -> Penstock:
    """The app as it is; or as it was before the last deploy."""
    app = Penstock(url)

    @app.task(name="box", retries=penstock.Retry(max=1, delay=0))
    def box(item: int) -> int:
        if item < 0 or (item == 13 and penstock.current().attempt == 1):
            raise ValueError(f"no box for {item}")
        return item * 10

    @app.task(name="ship")
    def ship(boxes: list[int], note: str) -> str:
        return f"{sum(boxes)} {note}"

    @app.pipeline(name="pack")
    def pack(items: list[int], note: str = "shipped") -> Any:
        """Boxes for all items, shipped together."""
        first = box.options(key="note") if old else box
        return ship(first.map(items).collect(), note)

    @app.pipeline(name="approve")
    def approve(item: int) -> Any:
        approved = wait_for("approve")
        return [box(item), box.options(key="note")(approved) if old else approved]

    @app.pipeline(name="bundle")
    def bundle(items: list[int]) -> Any:
        return pack(items)

    @app.pipeline(name="hexadecimal")
    def hexadecimal(item: int) -> Any:
        return box.options(key="bad")(item)

    @app.pipeline(name="torn")
    def torn(_item: int) -> Any:
        raise LookupError

    @app.pipeline(name="limited", on_failure="continue")
    def limited(first: int, second: int) -> Any:
        return [box.options(key="one")(first), box.options(key="two")(second)]

    return app
