"""Inside a handler process: import the task, run one job after the other, answer over the pipe."""

from __future__ import annotations

import faulthandler
import importlib
import inspect
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, fields
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import DefinitionError
from penstock.queue.jobs import Claim
from penstock.runtime import signals
from penstock.runtime.executors.call import call_sync
from penstock.runtime.work import Work
from penstock.settings import Settings
from penstock.surroundings import Surroundings
from penstock.task import Task
from penstock.values.outcome import raised

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class Message(Enum):
    BEGUN = 0
    PROGRESS = 1
    ENDED = 2


@dataclass(frozen=True, slots=True)
class Home:
    """What an app is made anew from, for a function that its own module did not make a task of."""

    app: type
    settings: Settings

    def adopt(self, function: Any, name: str) -> Any:
        app = self.app(**{field.name: getattr(self.settings, field.name) for field in fields(self.settings)})
        return app.task(name=name)(function)


def serve(pipe: Connection, home: Home) -> None:
    """Serve until the pipe closes. Stop signals are the parent's business, which may want the work finished."""
    busy = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None if busy.is_set() or pipe.poll() else os._exit(0))
    signals.show_where_it_dies()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    threading.Thread(
        target=_end_with, args=(os.getppid(),), name="penstock-orphan-watch", daemon=True
    ).start()
    while True:
        busy.clear()
        try:
            claim, address, process = pipe.recv()
        except EOFError:
            return
        busy.set()
        pipe.send((Message.ENDED, _run(pipe, home, claim, address, process)))


def _end_with(parent: int) -> None:
    """Whoever gave us our work is dead, and its claims are somebody else's: what runs here must not go on."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


class Address(NamedTuple):
    """Where a fresh process finds a task: it is imported there, never pickled."""

    module: str
    name: str
    is_more: bool
    """Than the function of that name: it is decorated, or bound to an object."""

    @classmethod
    def of(cls, function: Any) -> Address:
        name = getattr(function, "__qualname__", f"<{type(function).__name__}>")
        return cls(function.__module__, name, _is_more(function))


def _run(pipe: Connection, home: Home, claim: Claim, address: Address, process: str) -> Any:
    try:
        task = _find(home, claim.task, address)
    except BaseException as error:
        return raised(error)
    pipe.send((Message.BEGUN, None))

    def report(job_id: str, fraction: float, message: str) -> None:
        pipe.send((Message.PROGRESS, (job_id, fraction, message)))

    host = task.host
    limits = (host.settings.payload_limit, host.settings.expand_limit)
    around = Surroundings(host.database, process, host.follow, *limits, report)
    return call_sync(Work.of(claim, task), around)


@lru_cache
def _find(home: Home, task: str, address: Address) -> Any:
    module: Any = sys.modules.get(address.module) or importlib.import_module(address.module)
    for each in vars(module).values():
        if isinstance(each, Task) and each.name == task:
            return each
    found = None if "<" in address.name else module
    for part in address.name.split("."):
        found = getattr(found, part, None)
    whole = found.function if isinstance(found, Task) else found
    if found is None or (address.is_more and not _is_more(whole)):
        without = "" if found is None else " with its decorators, or bound to its object,"
        raise DefinitionError(
            f'{task}: a task with executor="process" is imported by a fresh process, and {address.module} has no '
            f"{address.name}{without} that could be imported. Put the function at the top of a module, as a task."
        )
    return found if isinstance(found, Task) else home.adopt(found, task)


def _is_more(function: Any) -> bool:
    bound = inspect.ismethod(function) and not isinstance(function.__self__, type)
    return bound or hasattr(function, "__wrapped__")
