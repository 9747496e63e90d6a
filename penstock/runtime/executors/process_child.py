"""Inside a handler process: import the task, run one job after the other, answer over the pipe."""

from __future__ import annotations

import errno
import faulthandler
import importlib
import inspect
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.errors import DefinitionError
from penstock.handler_environment import HandlerEnvironment
from penstock.middleware import Middleware, checked_middleware
from penstock.queue.jobs import Claim
from penstock.runtime import os_signals
from penstock.runtime.executors.call import call_sync
from penstock.runtime.executors.work import Work
from penstock.settings import Settings
from penstock.task import Task
from penstock.values.failure import Failure
from penstock.values.lazy_import import Lazy
from penstock.values.outcome import Rejected, raised

if TYPE_CHECKING:
    from multiprocessing import connection
    from multiprocessing.connection import Connection
else:
    connection = Lazy("multiprocessing.connection")


SHORTAGES = frozenset({errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE})


class Message(Enum):
    BEGUN = 0
    PROGRESS = 1
    ENDED = 2


class AppClass(Protocol):
    """The class of an app, as a fresh process needs it."""

    def __init__(self, **settings: Any) -> None: ...

    @classmethod
    def set_up_process(cls) -> None: ...

    def task(self, *, name: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class AppRecipe:
    """Makes an app in the child process, for a function that its own module does not register as a task."""

    app: type[AppClass]
    settings: Settings

    def adopt(self, function: Any, name: str) -> Any:
        app = self.app(**{field.name: getattr(self.settings, field.name) for field in fields(self.settings)})
        return app.task(name=name)(function)


def serve(pipe: Connection, home: AppRecipe) -> None:
    """Serve until the pipe closes. Stop signals are the parent's business, which may want the work finished."""
    busy = threading.Event()
    _stand_alone(pipe)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None if busy.is_set() or pipe.poll() else os._exit(0))
    os_signals.show_where_it_dies()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    threading.Thread(
        target=_end_with, args=(os.getppid(),), name="penstock-orphan-watch", daemon=True
    ).start()
    while True:
        busy.clear()
        try:
            order = Order(*pipe.recv())
        except EOFError:
            return
        busy.set()
        pipe.send((Message.ENDED, _run(pipe, home, order)))


def _stand_alone(pipe: Connection) -> None:
    """Whatever a handler starts is of our group, and is killed with us; it has nothing to say to our parent."""
    with suppress(PermissionError):  # we lead a session, and so a group
        os.setpgid(0, 0)
    os.set_inheritable(pipe.fileno(), False)
    os.register_at_fork(after_in_child=pipe.close)


def _end_with(parent: int) -> None:
    """Kill this child when its parent dies: other workers take the parent's claims, so the handler must not go on."""
    with suppress(AttributeError, OSError):  # where the system does not tell, it is asked every second
        death = os.pidfd_open(parent)
        if os.getppid() == parent:
            connection.wait([death])
    while os.getppid() == parent:
        time.sleep(1.0)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


class FunctionAddress(NamedTuple):
    """Where a fresh process finds a task: it is imported there, never pickled."""

    module: str
    name: str
    is_more: bool
    """True if the task is a decorated or bound version of the importable function."""

    @classmethod
    def of(cls, function: Any) -> FunctionAddress:
        name = getattr(function, "__qualname__", f"<{type(function).__name__}>")
        return cls(function.__module__, name, _is_more(function))


class Order(NamedTuple):
    """The work that the parent sends: a claim, where its task and its middleware are found, and for which process."""

    claim: Claim
    address: FunctionAddress
    middleware: list[FunctionAddress]
    process: str


def _run(pipe: Connection, home: AppRecipe, order: Order) -> Any:
    try:
        task = _find(home, order.claim.task, order.address)
        middleware = _middleware(task, order.middleware)
    except BaseException as error:
        return Rejected(Failure.of(error)) if is_shortage(error) else raised(error)
    pipe.send((Message.BEGUN, None))

    def report(job_id: str, fraction: float, message: str) -> None:
        pipe.send((Message.PROGRESS, (job_id, fraction, message)))

    host = task.host
    limits = (host.settings.payload_limit, host.settings.expand_limit)
    around = HandlerEnvironment(host.database, order.process, host.follow, *limits, report)
    work = Work.of(order.claim, task)
    work.middleware = middleware
    return call_sync(work, around)


def is_shortage(error: BaseException) -> bool:
    """True if the system lacks memory, handles, threads or processes for the import of the application."""
    if isinstance(error, OSError):
        return error.errno in SHORTAGES
    if isinstance(error, ImportError):  # by the loader of a shared library
        return any(words in str(error) for words in ("failed to map segment", "Cannot allocate memory"))
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    )


def _middleware(task: Task[Any, Any], addresses: list[FunctionAddress]) -> tuple[Middleware, ...]:
    """The middleware as the parent has it: what goes around the task here, if that is the same."""
    if [FunctionAddress.of(each) for each in task.middleware] == addresses:
        return task.middleware
    return tuple([_find_middleware(task, each) for each in addresses])


def _find_middleware(task: Task[Any, Any], address: FunctionAddress) -> Middleware:
    """The middleware that goes around this task here, or one that can be imported."""
    for known in task.middleware:
        if FunctionAddress.of(known) == address:
            return known
    found: Any = None
    if "<" not in address.name:
        found = sys.modules.get(address.module) or importlib.import_module(address.module)
        for part in address.name.split("."):
            found = getattr(found, part, None)
    if found is None:
        raise DefinitionError(
            f'{task.name}: a task with executor="process" runs in a fresh process, where its middleware {address.name} '
            f"is not found. Declare it at the top of a module that the module of the task imports."
        )
    return checked_middleware(found)


@lru_cache
def _find(home: AppRecipe, task: str, address: FunctionAddress) -> Any:
    home.app.set_up_process()
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
