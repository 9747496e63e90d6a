"""A claim of a job as work for executors: its task, its policy, its event, and the attempt that settles it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from penstock.context import CurrentJob
from penstock.errors import ConfigurationError, DefinitionError, UnknownTask
from penstock.handler_environment import HandlerEnvironment, HandlerFlags
from penstock.middleware import Middleware
from penstock.queue.jobs import Attempt, Claim, headers_of
from penstock.runtime.executors import call
from penstock.runtime.executors.function_address import FunctionAddress, find_middleware, is_more
from penstock.runtime.executors.process_child import AppRecipe, Child
from penstock.runtime.executors.work import Died, Interruption, Work
from penstock.task import Task
from penstock.task_options import EXECUTORS
from penstock.values import outcome as outcomes
from penstock.values.failure import Failure
from penstock.values.outcome import Event, Outcome, Returned
from penstock.values.retry import Retry
from penstock.values.status import JobStatus, OutcomeKind, Reason
from penstock.values.typed_json.json_text import loads

SUCCEEDED = OutcomeKind.SUCCEEDED
Arguments = tuple[list[Any], dict[str, Any]]


@dataclass(slots=True, eq=False)
class JobWork(Work):
    """A claim with its task and everything that may happen to it on the way. Its key: the job and its generation."""

    claim: Claim
    task: Any
    policy: Retry
    middleware: tuple[Middleware, ...] = ()

    only_seen: ClassVar[Interruption] = Interruption.CANCELLED

    @classmethod
    def of(cls, claim: Claim, task: Any) -> JobWork:
        if task is None:
            raise UnknownTask(claim.task)
        settings = task.settings
        key = (claim.job_id, claim.generation)
        work = cls(
            key,
            settings.timeout,
            task.executor,
            HandlerFlags(),
            claim,
            task,
            settings.retries,
            task.middleware,
        )
        if claim.options is not None:
            _override(work, loads(claim.options))
        return work

    @property
    def id(self) -> str:
        return self.claim.job_id

    @property
    def name(self) -> str:
        return self.claim.task

    def begin_job(self, around: HandlerEnvironment) -> CurrentJob:
        """From here on the handler's time counts."""
        self.began = time.monotonic()
        self.started = True
        task = self.task
        return CurrentJob(self.claim, task.codec, around, self.signals, self.began, task.host)

    def run_here(self, around: HandlerEnvironment) -> Event | None:
        return call.call_sync(self, around)

    def run_on_loop(self, around: HandlerEnvironment) -> Coroutine[Any, Any, Event | None]:
        return call.call_async(self, around)

    def order(self, around: HandlerEnvironment) -> JobOrder:
        addresses = [FunctionAddress.of(each) for each in self.middleware]
        return JobOrder(self.claim, FunctionAddress.of(self.task.function), addresses, around.process)

    def arguments(self) -> Arguments:
        if self.claim.fault is not None:
            raise self.claim.fault
        if self.claim.call is not None:
            return self.task.codec.decode_call(*self.claim.call)  # type: ignore[no-any-return]
        return self.task.codec.decode_arguments(self.claim.payload)  # type: ignore[no-any-return]

    def known_headers(self) -> Mapping[str, str] | None:
        """The headers that were stored with the job or its run. None: those of its run are yet to be read."""
        own = headers_of(self.claim.options)
        if own or self.claim.run_id is None or not self.task.host.enqueue_middlewares:
            return own
        return self.task.host.engine.run_headers.known(self.claim.run_id)  # type: ignore[no-any-return]

    def read_headers(self) -> Mapping[str, str]:
        """Those of the run, from the database."""
        return self.task.host.engine.run_headers.read(self.claim.run_id)  # type: ignore[no-any-return]

    def outcome(self, event: Event | Died) -> Attempt:
        """The attempt to be settled. There is one for every event, or the claim would be held for ever."""
        try:
            if type(event) is Returned:
                outcome = Outcome(SUCCEEDED, event.output, None, None, event.reason)
            else:
                outcome = self._decided(event)
        except Exception as error:
            failure = Failure.of(error)
            outcome = Outcome(OutcomeKind.ERRORED, failure=failure, reason=Reason.NOT_RETRYABLE)
        if not self.started:
            return Attempt(self.claim, outcome, began=False)
        return Attempt(self.claim, outcome, int((time.monotonic() - self.began) * 1_000_000))

    def _decided(self, event: Event | Died) -> Outcome:
        if isinstance(event, Died):
            return self._crashed(event)
        return outcomes.decide(event, self.policy, self.claim.retry_count, random.random())

    def _crashed(self, event: Died) -> Outcome:
        status, delay, reason = outcomes.decide_crash(self.claim.crash_count + 1, self.claim.max_crashes)
        failure = Failure.note("Crashed", event.message)
        final = status is JobStatus.FAILED
        return Outcome(OutcomeKind.CRASHED, failure=failure, delay=None if final else delay, reason=reason)


class JobOrder(NamedTuple):
    """The job that a handler process is sent: a claim, where its task and its middleware are found, and whose it is."""

    claim: Claim
    address: FunctionAddress
    middleware: list[FunctionAddress]
    process: str

    def run(self, child: Child) -> Event | None:
        try:
            task = _find(child.home, self.claim.task, self.address)
            middleware = find_middleware(task.name, task.middleware, self.middleware)
        except BaseException as error:
            return outcomes.raised(error)
        child.begin()
        host = task.host
        limits = (host.settings.payload_limit, host.settings.expand_limit)
        around = HandlerEnvironment(host.database, self.process, host.follow, *limits, child.report)
        work = JobWork.of(self.claim, task)
        work.middleware = middleware
        return work.run_here(around)


@lru_cache
def _find(home: AppRecipe, task: str, address: FunctionAddress) -> Any:
    home.app.set_up_process()
    for each in vars(address.imported_module()).values():
        if isinstance(each, Task) and each.name == task:
            return each
    found = address.found()
    whole = found.function if isinstance(found, Task) else found
    if found is None or (address.is_more and not is_more(whole)):
        without = "" if found is None else " with its decorators, or bound to its object,"
        raise DefinitionError(
            f'{task}: a task with executor="process" is imported by a fresh process, and {address.module} has no '
            f"{address.name}{without} that could be imported. Put the function at the top of a module, as a task."
        )
    return found if isinstance(found, Task) else home.adopt(found, task)


def work_maker(
    find_task: Callable[[str], Any], finished: Callable[[Attempt], None]
) -> Callable[[Claim], JobWork | None]:
    """Make works of claims. A claim of which none can be made is finished at once: one that is held needs an outcome.

    The error is that claim's alone.
    """

    def make(claim: Claim) -> JobWork | None:
        task = None
        try:
            task = find_task(claim.task)
            return JobWork.of(claim, task)
        except Exception as error:
            finished(unfit(claim, task, error))
            return None

    return make


def unfit(claim: Claim, task: Any, error: Exception) -> Attempt:
    """The attempt for a claim that cannot be made into a work: it fails with that error, by the policy of its task.

    The same holds if the task is unknown here: a worker that knows it may claim the next retry.
    """
    policy = Retry() if task is None else task.settings.retries
    reason = Reason.UNKNOWN_TASK if isinstance(error, UnknownTask) else None
    event = outcomes.Raised(Failure.of(error), reason)
    return Attempt(claim, outcomes.decide(event, policy, claim.retry_count, random.random()))


def _override(work: JobWork, stored: Any) -> None:
    """Apply the `.options()` of the enqueue, which override those of the decorator."""
    work.timeout = stored.get("timeout", work.timeout)
    work.executor = stored.get("executor", work.executor)
    if work.executor not in EXECUTORS:
        raise ConfigurationError(f"{work.claim.task}: there is no executor {work.executor!r} in this process")
    if "retries" in stored:
        work.policy = Retry.from_dict(stored["retries"])
