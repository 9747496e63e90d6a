"""One pipeline in several versions, each in an app of its own on the same database, as deploys leave them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import Penstock


class Versions:
    """`versions("two", lambda t, x: t.last(t.middle(x)))` is an app whose pipeline is described so."""

    def __init__(self, make_app: Callable[..., Penstock]) -> None:
        self.make_app = make_app
        self.calls: list[tuple[str, Any]] = []
        self.broken: set[str] = set()

    def __call__(self, describe: Callable[..., Any], settings: Any = None, **given: Any) -> Any:
        app = self.make_app(**(settings or {}))
        tasks = Tasks(app, self)

        @app.pipeline(name="order", **given)
        def order(x: object, size: int = 3) -> Any:
            return describe(tasks, x)

        return order


class Tasks:
    """Tasks `a` to `f`, which note that they ran, `many`, which makes a list, and `total`."""

    def __init__(self, app: Penstock, versions: Versions) -> None:
        for name in "abcdef":
            setattr(self, name, app.task(name=name, retries=0)(noting(name, versions)))

        @app.task(name="many")
        def many(x: int) -> list[int]:
            return list(range(x))

        @app.task(name="total")
        def total(xs: list[Any]) -> int:
            versions.calls.append(("total", len(xs)))
            return len(xs)

        self.many, self.total = many, total

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def noting(name: str, versions: Versions) -> Callable[..., Any]:
    def work(x: Any = None, y: Any = None) -> Any:
        versions.calls.append((name, x))
        if name in versions.broken:
            raise ValueError(name)
        return f"{name}({x})" if y is None else f"{name}({x},{y})"

    return work
