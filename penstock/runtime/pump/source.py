"""A source is anything the pump can claim from: the job queue, or a reconciler over a user's table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from typing import Generic, NamedTuple, TypeVar

from penstock.database.transaction import Transaction

C = TypeVar("C")
F = TypeVar("F")


class Heed(NamedTuple):
    """When the pump should look again."""

    after: float
    """In so many seconds."""
    there: bool
    """True if the work was committed before the wake-up: after a look that finds nothing, no other is needed."""


class Source(ABC, Generic[C, F]):
    """Where claims come from and outcomes go to. `C` is a claim, `F` a finished piece of work.

    Where nothing else is said, a claim is complete as it is, unblocks nothing, and is in a table of the user's.
    """

    name: str
    met: bool = False
    """The last claim found places in the queue, even if there was nothing to take behind them."""
    one_statement: bool = False
    """A claim is a single statement on this database, and needs no transaction around it."""
    unblocks_work: bool = False
    """True if a settle can make other work ready."""
    own_tables: bool = False
    """The work is in tables of ours: nothing is known about the user's, so nothing is said about finding their rows."""

    @abstractmethod
    def settle(self, tx: Transaction, finished: Sequence[F], room: int = 0) -> list[C]:
        """Write the outcomes of all whose claims still stand. May be repeated after a lost answer.

        With room, what they make ready may be held at once: the claims that are.
        """

    @abstractmethod
    def claim(self, tx: Transaction, limit: int, alone: bool = False) -> list[C]:
        """Take up to `limit` pieces of work. `alone`: there is nothing else in this transaction."""

    def is_complete(self, claims: Sequence[C]) -> bool:
        """Everything needed to run these is at hand."""
        return True

    def complete(self, tx: Transaction, claims: Sequence[C], by_reading: bool = False) -> list[C]:
        """Fetch what is missing, in the claim's transaction or in one after it; the claims that are to be run.

        By reading alone, without a transaction: none of them, if that takes more.
        """
        return list(claims)

    @abstractmethod
    def forget(self, claims: Sequence[C]) -> None:
        """Claims that could not be completed: they are not held here, so `recover` gives them back."""

    @abstractmethod
    def committed(self) -> None:
        """Called after the commit of the last settle and claim: emit events, wake others, drop settled claims."""

    @abstractmethod
    def rolled_back(self) -> None:
        """The transaction of the last settle and claim failed, or its answer was lost."""

    @abstractmethod
    def heard(self, subjects: Set[str], room: int = 1) -> Heed | None:
        """Wake-ups came; what they are about may save a search. They may be anything.

        None: they are about nothing that could be claimed here.
        """

    @abstractmethod
    def recover(self, tx: Transaction) -> None:
        """After a lost answer: give back what we may hold without knowing it."""

    def set_aside(self, tx: Transaction, error: Exception) -> bool:
        """Leave out, for a while, the first piece of work that the last claim would have met; True if there was one.

        The rows of a user's table have no place but their own where one could be put.
        """
        return False

    @abstractmethod
    def name_of(self, finished: F) -> str:
        """The piece of work, as the log names it."""

    @abstractmethod
    def blame(self, finished: F, error: Exception) -> F | None:
        """The one piece of work that the database refuses to settle, with that error as its outcome.

        None: nothing can be said of it that would not be refused.
        """
