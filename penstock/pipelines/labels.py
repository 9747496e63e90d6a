"""Labels of runs: words by which people find them again. Given at the trigger; a revival and a re-run have them too."""

from __future__ import annotations

from penstock.database.transaction import Transaction
from penstock.errors import ConfigurationError
from penstock.values import checks
from penstock.values.lengths import NAME_LENGTH

MOST = 50

OF_RUN = "SELECT label FROM {run_labels} WHERE run_id = :run ORDER BY label"
COPY = "INSERT INTO {run_labels} (label, run_id) SELECT label, :new FROM {run_labels} WHERE run_id = :old"


def read_labels(pipeline: str, given: object) -> tuple[str, ...]:
    """Labels as a trigger is given them: a text, or several."""
    if given is None:
        return ()
    several = [given] if isinstance(given, str) else given
    if not isinstance(several, list | tuple | set | frozenset):
        raise ConfigurationError(f"{pipeline}: labels={given!r}: give texts, such as labels=['tenant:7']")
    for label in several:
        try:
            checks.text(label, NAME_LENGTH)
        except ValueError as error:
            raise ConfigurationError(
                f"{pipeline}: the label {label!r} must be a text of 1 to {NAME_LENGTH} characters: {error}"
            ) from None
    if len(several) > MOST:
        raise ConfigurationError(f"{pipeline}: {len(several)} labels; a run may have {MOST}")
    return tuple(sorted(set(several)))


def of_run(tx: Transaction, run: str) -> list[str]:
    """In the order of the alphabet."""
    return sorted(str(label) for (label,) in tx.rows(OF_RUN, run=run))


def copy(tx: Transaction, old: str, new: str) -> None:
    """A run that goes on from another, or repeats it, is found by the same words."""
    tx.run(COPY, new=new, old=old)
