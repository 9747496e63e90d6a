"""Tasks of `django.tasks` that the contract is tested with."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User

from penstock import Cancel, Concurrency, Retry, current
from penstock.django import app
from penstock.django.tasks_api import PACKAGE, base
from penstock.queue import reclaim

task: Any = base.task
assert PACKAGE in ("django.tasks", "django_tasks")
SEEN: list[Any] = []
"""What tasks have noted, in order."""
MAY_END = threading.Event()


class OwnError(Exception):
    """An error that needs more than a message."""

    def __init__(self, one: object, two: object) -> None:
        super().__init__(f"{one} {two}")
        self.held = lambda: (one, two)


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    return {"args": args, "kwargs": kwargs}


@task
async def echo_async(*args: Any, **kwargs: Any) -> Any:
    await asyncio.sleep(0)
    return {"args": args, "kwargs": kwargs}


@task
def meaning() -> int:
    return 42


@task
def note(what: Any) -> None:
    SEEN.append(what)


@task
def fail(kind: str = "plain") -> None:
    raise OwnError(1, 2) if kind == "own" else ValueError("this is wrong")


@task
async def fail_async() -> None:
    raise ValueError("this is wrong")


@task
def return_object() -> object:
    return object()


@task(takes_context=True)
def with_context(context: Any, add: int) -> list[Any]:
    return [context.task_result.id, context.attempt, context.task_result.status, add]


@task(takes_context=True)
async def with_context_async(context: Any) -> int:
    return int(context.attempt)


@task(retries=Retry(max=2, delay=60))
def fail_thrice() -> None:
    raise ValueError("again")


@task(backend="patient")
def fail_patiently() -> None:
    raise ValueError("again")


@task(backend="patient", retries=0)
def fail_impatiently() -> None:
    raise ValueError("at once")


@task(timeout=0.05, executor="async")
async def sleep_too_long() -> None:
    await asyncio.sleep(30)


@task(timeout=0.05)
def wait_too_long() -> None:
    MAY_END.wait(60)
    SEEN.append("ended")


@task
def give_up() -> Cancel:
    return Cancel("not today")


@task
def complete_inside() -> None:
    with current().transaction():
        current().complete(None)


@task(max_crashes=0)
def lose_claim() -> int:
    """Its process is taken for dead while it runs, and the job is ended."""
    app.database.in_transaction(reclaim.remove_process, current()._around.process)
    app.database.in_transaction(reclaim.reclaim)
    return 1


@task(max_crashes=0)
def fragile() -> None: ...


def _plain() -> str:
    return "done"


renamed = task(_plain)


@app.task(executor="process")
def count_users() -> int:
    """In a process of its own, which sets Django up by itself."""
    return int(User.objects.count())


@task
def wait_for(file: str) -> str:
    while not Path(file).exists():
        time.sleep(0.02)
    return file


@task(limits=(Concurrency(1, key="account"),), takes_context=True)
def by_account(context: Any, account: int, pause: float = 0.0) -> int:
    time.sleep(pause)
    return account
