"""Inside a handler process: import the handler, run one order after the other, answer over the pipe."""

from __future__ import annotations

import errno
import faulthandler
import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from penstock.runtime import os_signals
from penstock.runtime.executors.work import Order
from penstock.settings import Settings
from penstock.values.failure import Failure
from penstock.values.lazy_import import Lazy
from penstock.values.outcome import Raised, Rejected, raised

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


class Child:
    """A handler process, as the orders see it that it gets."""

    def __init__(self, pipe: Connection, home: AppRecipe) -> None:
        self.home = home
        self._pipe = pipe

    def begin(self) -> None:
        """Everything is imported: from here on the handler's time counts."""
        self._pipe.send((Message.BEGUN, None))

    def report(self, job_id: str, fraction: float, message: str) -> None:
        """Pass progress on to the parent, which writes it when convenient."""
        self._pipe.send((Message.PROGRESS, (job_id, fraction, message)))


HELD_BACK = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1})
"""Signals for which a fresh process has no handlers until `serve` begins. A terminal sends Ctrl-C to all processes, and
a service manager SIGTERM: what still imports its modules then would end, and its job would be given back for nothing.
"""


def serve(pipe: Connection, home: AppRecipe) -> None:
    """Serve until the pipe closes. Stop signals are the parent's business, which may want the work finished."""
    busy = threading.Event()
    child = Child(pipe, home)
    _stand_alone(pipe)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None if busy.is_set() or pipe.poll() else os._exit(0))
    os_signals.show_where_it_dies()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
    threading.Thread(
        target=_end_with, args=(os.getppid(),), name="penstock-orphan-watch", daemon=True
    ).start()
    while True:
        busy.clear()
        try:
            order: Order = pipe.recv()
        except EOFError:
            return
        busy.set()
        pipe.send((Message.ENDED, order.run(child)))


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


def import_failed(error: BaseException) -> Raised | Rejected:
    """The event of work whose handler could not be imported: a shortage of the system is no fault of the work."""
    return Rejected(Failure.of(error)) if is_shortage(error) else raised(error)


def is_shortage(error: BaseException) -> bool:
    """True if the system lacks memory, handles, threads or processes for the import of the application."""
    if isinstance(error, OSError):
        return error.errno in SHORTAGES
    if isinstance(error, ImportError):  # by the loader of a shared library
        return any(words in str(error) for words in ("failed to map segment", "Cannot allocate memory"))
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    )
