"""The executors of one worker: its dispatchers share them, so that its threads and processes have one cap."""

from __future__ import annotations

from penstock.handler_environment import HandlerEnvironment
from penstock.runtime.executors import Executor
from penstock.runtime.executors.async_executor import LoopExecutor
from penstock.runtime.executors.process_child import AppClass
from penstock.runtime.executors.process_executor import ProcessExecutor
from penstock.runtime.executors.thread_executor import ThreadExecutor
from penstock.telemetry.events import Stream


class ExecutorSet:
    """One executor of each kind, by the name that a task or a reconciler gives as its `executor`."""

    def __init__(
        self, around: HandlerEnvironment, stream: Stream, app: type[AppClass], processes: int | None
    ) -> None:
        self.processes = ProcessExecutor(around, app, processes)
        self.by_name: dict[str, Executor] = {
            "async": LoopExecutor(around, stream),
            "thread": ThreadExecutor(around, stream),
            "process": self.processes,
        }

    def close(self) -> None:
        for executor in self.by_name.values():
            executor.close()
