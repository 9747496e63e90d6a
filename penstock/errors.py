"""Every error Penstock raises on purpose, in one tree. Each message says what to do next.

PenstockError
├── ConfigurationError            a setting, an option or a URL is wrong
├── DefinitionError               a task, a pipeline or a reconciler is declared wrongly
├── ArgumentError (TypeError)     arguments do not fit a task's signature
├── SerializationError            a value cannot be written as JSON, or stored JSON cannot be read
│   └── PayloadTooLarge
├── AdvancementFailed             what follows from a step cannot be planned
├── UnknownTask                   a stored name that this process has not imported
├── JobFailed                     job.result() of a job that will never have one
├── RunFailed                     run.result() of a run that will never have one
├── ResultTimeout (TimeoutError)  the result did not come in the time given
├── StaleClaimError               this process no longer holds the claim it tried to write under
│   ├── CommitFailed              ... noticed when a result was settled: the result is dropped
│   └── LeaseLost                 ... noticed while the handler was still running
├── AppClosed                     app.close() came before the call had begun, or while it waited
├── LockTimeout (TimeoutError)    a row stayed locked for longer than the caller would wait
├── RowNotFound (LookupError)     there is no row with that key to lock
├── OverwriteError                a write-once key was written a second time
├── ActionRefused                 the job or run is not in a state that allows the action
│   ├── ReviveError
│   ├── DefinitionsDiffer         a run cannot go on with another definition
│   ├── CancelConflict
│   └── TokenError                a resume token cannot be used; nothing was changed
│       ├── TokenForged           ... it was not signed by this installation
│       ├── TokenExpired          ... its time is over
│       ├── TokenSpent            ... the step that it was for does not wait any more
│       └── RunOver               ... the run has ended, or is about to
└── DatabaseError
    ├── DatabaseUnavailable       no connection, or it was lost and the retries are spent
    ├── ReadTimeout               a statement of a page of the dashboard took too long, and was ended
    ├── SchemaOutdated            the tables are older than this version of Penstock
    └── SchemaTooNew              the tables are newer than this version of Penstock
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class PenstockError(Exception):
    """The root: `except PenstockError` catches everything Penstock raises on purpose."""

    def __reduce__(self) -> Any:
        """Pickle an error by the arguments of its constructor, which it keeps under the same names."""
        made = getattr(type(self).__init__, "__code__", None)
        if made is None:
            return super().__reduce__()
        names = made.co_varnames[1 : made.co_argcount]
        return type(self), tuple([str(self) if name == "message" else getattr(self, name) for name in names])


class ConfigurationError(PenstockError):
    """A setting, an option or a URL is wrong."""


class DefinitionError(PenstockError):
    """A task, a pipeline or a reconciler is declared wrongly; nothing was written."""


class ArgumentError(PenstockError, TypeError):
    """Arguments do not fit a task's signature."""

    def __init__(self, task: str, problem: str, parameter: str | None = None) -> None:
        self.task = task
        self.problem = problem
        self.parameter = parameter
        where = f"argument {parameter!r} of {task}" if parameter else task
        super().__init__(f"{where}: {problem}")


class SerializationError(PenstockError):
    """A value cannot be written as JSON, or stored JSON cannot be read."""


class PayloadTooLarge(SerializationError):
    """An argument list or a result is larger than the `payload_limit` or `expand_limit` setting."""

    def __init__(self, name: str, size: int, limit: int) -> None:
        self.name = name
        self.size = size
        self.limit = limit
        super().__init__(
            f"{name} takes {size:,} bytes as JSON; payload_limit (for what is expanded, expand_limit) allows "
            f"{limit:,}. Store the data elsewhere and pass a reference to it, or raise the limit."
        )


class AdvancementFailed(PenstockError):
    """The plan after an ended step could not be made; after a few tries the run is halted."""

    def __init__(self, run_id: str, problem: str, spend: Callable[[], bool] = bool) -> None:
        self.run_id = run_id
        self.problem = problem
        self.spend = spend
        """Count a try; False when it is time to try something else."""
        super().__init__(f"what follows from a step of run {run_id} cannot be planned: {problem}")


class UnknownTask(PenstockError):
    """A stored task name that this process has not imported."""

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        self.name = name
        self.known = tuple(known)
        some = f" Known here: {', '.join(sorted(self.known)[:10])}." if known else ""
        super().__init__(
            f"no task is named {name!r} in this process. Import the module that declares it, "
            f"or give the renamed task its old name: @app.task(name={name!r}).{some}"
        )


class JobFailed(PenstockError):
    """The job ended without a result."""

    def __init__(self, job_id: str, reason: str, error: str = "") -> None:
        self.job_id = job_id
        self.reason = reason
        self.error = error
        detail = f": {said}" if (said := error.rstrip(". :")) else ""
        super().__init__(
            f"job {job_id} has no result ({reason}){detail}. job.attempts() tells the whole story; "
            "job.retry() runs it again."
        )


class RunFailed(PenstockError):
    """The run ended without a result."""

    def __init__(
        self, run_id: str, status: str, reasons: Sequence[str] = (), step: str = "", error: str = ""
    ) -> None:
        self.run_id = run_id
        self.status = status
        self.reasons = tuple(reasons)
        self.step = step
        self.error = error
        detail = f" ({', '.join(self.reasons)})" if self.reasons else ""
        detail += f": step {step!r}: {said}" if (said := error.rstrip(". :")) else ""
        then = "run.steps() shows which step and why; run.revive() redoes what did not finish."
        if status in ("cancelled", "skipped"):
            then = "It has no result; run.rerun() does the same again as a new run."
        super().__init__(f"run {run_id} ended {status}{detail}. {then}")


class ResultTimeout(PenstockError, TimeoutError):
    """The result did not come in the time given; the work itself goes on."""

    def __init__(self, what: str, seconds: float, status: str = "") -> None:
        self.what = what
        self.seconds = seconds
        self.status = status
        now = f"; it is {status}" if status else ""
        super().__init__(
            f"{what} had no result after {seconds:g} s{now}. The work goes on: ask again later, "
            "and check that a worker is running (penstock status)."
        )


class AppClosed(PenstockError):
    """The app was closed before a call had begun, or while it waited for a result; it has written nothing."""


class StaleClaimError(PenstockError):
    """This process no longer holds the claim it tried to write under; nothing was written."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(self.explain(what))

    def explain(self, what: str) -> str:
        return f"the claim on {what} was lost: this process holds it no more. Nothing was written: stop working on it."


class CommitFailed(StaleClaimError):
    """The claim was lost before the result could be settled; the result is dropped."""

    def explain(self, what: str) -> str:
        return (
            f"the result of {what} was dropped: the claim was lost before it could be settled. "
            "The worker that holds the job now will run it; make the handler idempotent or use job.transaction()."
        )


class LeaseLost(StaleClaimError):
    """The claim was lost while the handler was running."""

    def explain(self, what: str) -> str:
        return (
            f"the claim on {what} was lost while it was being worked on. Stop: its result will not be "
            "accepted. If this happens often, raise reap_after or look for what froze the process."
        )


class LockTimeout(PenstockError, TimeoutError):
    """A row stayed locked for longer than the caller would wait."""

    def __init__(self, what: str, seconds: float) -> None:
        self.what = what
        self.seconds = seconds
        super().__init__(
            f"{what} was still locked after {seconds:g} s. Try again, or wait longer (timeout=)."
        )


class RowNotFound(PenstockError, LookupError):
    """There is no row with that key."""

    def __init__(self, table: str, key: tuple[object, ...]) -> None:
        self.table = table
        self.key = key
        shown = key[0] if len(key) == 1 else key
        super().__init__(f"{table} has no row {shown!r}. Has it been deleted, or not been committed yet?")


class OverwriteError(PenstockError):
    """A write-once key was written a second time."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"{key!r} is set already, and keys are write-once. Pass overwrite=True to replace it, "
            "or use compare_and_set()."
        )


class ActionRefused(PenstockError):
    """The job or run is not in a state that allows the action."""


class ReviveError(ActionRefused):
    """The run cannot be revived; only halted and failed runs can."""


class DefinitionsDiffer(ActionRefused):
    """A run cannot go on with another definition: a step that it already has differs there."""

    def __init__(self, run: str, differences: Sequence[str]) -> None:
        self.differences = tuple(differences)
        super().__init__(f"run {run} stays with its definition: {'; '.join(differences)}")


class CancelConflict(ActionRefused):
    """The job or run cannot be cancelled, because it has ended or something else is ending it."""


class TokenError(ActionRefused):
    """A resume token cannot be used; nothing was changed."""


class TokenForged(TokenError):
    """The token was not signed with a secret of this installation, or was changed."""


class TokenExpired(TokenError):
    """The token's time is over."""


class TokenSpent(TokenError):
    """The step that the token was for does not wait any more: it was answered, or its time was over."""


class RunOver(TokenError):
    """The run that the token was for has ended, or is about to."""


class DatabaseError(PenstockError):
    """The database cannot be used as it is."""


class DatabaseUnavailable(DatabaseError):
    """No connection, or it was lost and the retries are spent.

    A job whose handler ends with this, about the worker's own database, is given back and tried again: an outage
    spends no budget.
    """

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.where = where


class ReadTimeout(DatabaseError):
    """A statement of a page of the dashboard took longer than `dashboard_timeout`, and was ended."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            f"this took the database longer than {seconds:g} s (dashboard_timeout), and was stopped. Narrow the "
            "filter, or see what else the database does: penstock doctor"
        )


class SchemaOutdated(DatabaseError):
    """The tables are older than this version of Penstock."""

    def __init__(self, found: int | None, needed: int) -> None:
        self.found = found
        self.needed = needed
        state = "has no Penstock tables" if found is None else f"has schema version {found}"
        super().__init__(f"the database {state}; this version needs {needed}. Run: penstock migrate")


class SchemaTooNew(DatabaseError):
    """The tables are newer than this version of Penstock."""

    def __init__(self, found: int, needed: int) -> None:
        self.found = found
        self.needed = needed
        super().__init__(
            f"the database has schema version {found}; this version of Penstock knows only {needed}. "
            "Upgrade the penstock package in this process."
        )
