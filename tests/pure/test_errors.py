"""errors: every error says what to do, survives pickling, and stands where the drawn tree says."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from penstock import errors
from penstock.errors import PenstockError

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, PenstockError) and value.__module__ == errors.__name__
]

EXAMPLES: list[tuple[PenstockError, list[str]]] = [
    (
        errors.ArgumentError("shop.pay", "expected int, got str", "amount"),
        ["shop.pay", "'amount'", "expected"],
    ),
    (
        errors.PayloadTooLarge("the result of shop.pay", 2_000_000, 1_048_576),
        ["shop.pay", "2,000,000", "limit"],
    ),
    (errors.AdvancementFailed("r1", "KeyError: 'x'"), ["r1", "KeyError"]),
    (errors.UnknownTask("shop.pay", ["shop.ship"]), ["shop.pay", "Import", "shop.ship"]),
    (
        errors.JobFailed("j1", "retries_exhausted", "ValueError: no"),
        ["j1", "retries_exhausted", "job.retry()"],
    ),
    (errors.RunFailed("r1", "halted", ["timed_out"]), ["r1", "halted", "timed_out", "run.revive()"]),
    (errors.ResultTimeout("job j1", 2.5, "running"), ["job j1", "2.5 s", "running", "worker"]),
    (errors.StaleClaimError("job j1"), ["job j1", "Nothing was written"]),
    (errors.CommitFailed("job j1"), ["job j1", "dropped", "idempotent"]),
    (errors.LeaseLost("job j1"), ["job j1", "Stop", "reap_after"]),
    (errors.LockTimeout("volumes 7", 5), ["volumes 7", "5 s", "Try again"]),
    (errors.OverwriteError("cursor"), ["'cursor'", "overwrite=True"]),
    (errors.SchemaOutdated(None, 3), ["no Penstock tables", "penstock migrate"]),
    (errors.SchemaOutdated(1, 3), ["version 1", "needs 3", "penstock migrate"]),
    (errors.SchemaTooNew(4, 3), ["version 4", "Upgrade"]),
]


@pytest.mark.parametrize(("error", "parts"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_the_message_names_what_and_says_what_to_do(error: PenstockError, parts: list[str]) -> None:
    for part in parts:
        assert part in str(error)


@pytest.mark.parametrize("error", [error for error, _ in EXAMPLES], ids=lambda value: type(value).__name__)
def test_errors_survive_pickling_and_copying(error: PenstockError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_the_tree_in_the_docstring_names_every_class_and_no_other() -> None:
    drawn = {line.strip("│├└─ ").split(" ")[0] for line in (errors.__doc__ or "").splitlines() if "─" in line}
    assert drawn == {cls.__name__ for cls in CLASSES} - {"PenstockError"}


def test_every_class_explains_itself() -> None:
    assert all(cls.__doc__ for cls in CLASSES)


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.ArgumentError, TypeError),
        (errors.ResultTimeout, TimeoutError),
        (errors.LockTimeout, TimeoutError),
    ],
)
def test_errors_that_python_has_a_word_for_are_also_that(cls: type, builtin: type) -> None:
    assert issubclass(cls, builtin)


def test_a_lost_claim_is_caught_as_one_thing() -> None:
    assert issubclass(errors.CommitFailed, errors.StaleClaimError)
    assert issubclass(errors.LeaseLost, errors.StaleClaimError)
