"""reconcile/outcome, reconcile/transfer: a row whose own process died; a row that travels."""

import pickle
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import JSON, Column, Integer, MetaData, String, Table, func

from penstock import NOW, Snooze
from penstock.errors import DefinitionError
from penstock.reconcile.columns import EPOCH, reconcilable_columns
from penstock.reconcile.item import Claimed, Item
from penstock.reconcile.options import LONGEST_BACKOFF, Policy
from penstock.reconcile.outcome import VisitKind, died, refused
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.transfer import pack_answer, pack_item, unpack_answer, unpack_item
from penstock.values.failure import Failure

metadata = MetaData()
table = Table(
    "travellers",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("state", String(10)),
    Column("tags", JSON),
    *reconcilable_columns(),
)
notes = Table("notes_of_travellers", metadata, Column("id", Integer, primary_key=True))


def nothing(item: Any) -> None: ...


RECONCILER = Reconciler(nothing, table, name="travel")
VALUES = {"id": 1, "state": "new", "tags": ["a"]}


def item(crashes: int = 0) -> Item:
    row = RECONCILER.target.rebuilt(VALUES)
    return Item("travel", RECONCILER.target, row, Claimed((1,), 7, EPOCH, EPOCH, 3, crashes), (), 0.0)


@pytest.mark.parametrize(
    ("crashes", "delay", "kind"),
    [(0, 0.0, VisitKind.CRASHED), (2, 0.0, VisitKind.CRASHED), (10, LONGEST_BACKOFF, VisitKind.CRASHED)],
)
def test_each_death_is_one_crash_more(crashes: int, delay: float, kind: VisitKind) -> None:
    end = died(Policy(), item(crashes), "killed")
    assert (end.kind, end.delay, end.crashes, end.attempts) == (kind, delay, crashes + 1, 3)
    assert str(end.failure) == "Crashed: killed"


def test_the_fourth_death_is_waited_for() -> None:
    assert died(Policy(), item(3), "killed").delay > 0


def test_a_row_that_is_given_up_becomes_what_was_said() -> None:
    end = died(Policy(max_crashes=2, on_exhausted={"state": "dead"}), item(2), "killed")
    assert (end.kind, end.values, end.crashes) == (VisitKind.EXHAUSTED, {"state": "dead"}, 0)


def test_a_row_that_cannot_be_given_up_rests_and_keeps_its_count() -> None:
    """Else it would be worked on for as many deaths again."""

    def fail(_: Any) -> dict[str, Any]:
        raise LookupError("no such state")

    end = died(Policy(max_crashes=2, on_exhausted=fail), item(2), "killed")
    assert (end.kind, end.delay, end.crashes) == (VisitKind.CRASHED, LONGEST_BACKOFF, 3)
    assert str(end.failure) == "LookupError: no such state"


def test_nor_does_one_forget_its_deaths_whose_last_values_the_database_refuses() -> None:
    policy = Policy(max_crashes=2, on_exhausted={"state": "dead"})
    end = refused(policy, died(policy, item(2), "killed"), Failure.note("IntegrityError", "no"))
    assert end is not None
    assert (end.kind, end.delay, end.crashes) == (VisitKind.CRASHED, LONGEST_BACKOFF, 3)


def test_a_row_travels_as_it_was_read() -> None:
    there = unpack_item(RECONCILER, pack_item(RECONCILER, item()))
    assert (there.id, there.token, there.attempts, there.row.state) == (1, 7, 3, "new")
    assert there.row._mapping[table.c.tags] == ["a"]
    assert there.row._mapping["id"] == there.row[0] == 1
    with pytest.raises(AttributeError):
        there.row.state = "set"


@pytest.mark.parametrize("value", [None, {"state": "done", "tags": NOW}, Snooze(5)])
def test_what_a_handler_wants_travels_back(value: Any) -> None:
    there, here = item(), item()
    there.update(there.row, tags=["b"])
    there.insert(notes, id=1)
    there.delete(there.row)
    assert unpack_answer(RECONCILER, here, pack_answer(RECONCILER, there, value)) == value
    assert here.changes == there.changes
    assert here.changes.inserts[0][0] is there.changes.inserts[0][0], "the table of this process"


def test_an_expression_is_refused_wherever_it_is() -> None:
    for act in (
        lambda _: {"state": func.upper("x")},
        lambda there: there.update(there.row, state=table.c.state),
        lambda there: there.insert(notes, id=func.random()),
    ):
        there = item()
        with pytest.raises(DefinitionError, match="returns values, no SQL expressions"):
            pack_answer(RECONCILER, there, act(there))


def test_what_cannot_be_pickled_is_refused_with_advice() -> None:
    with pytest.raises(
        DefinitionError, match='executor="process" takes rows and results that can be pickled'
    ):
        pack_answer(RECONCILER, item(), {"tags": lambda: 0})
    one = item()
    one.row = RECONCILER.target.rebuilt(VALUES | {"tags": lambda: 0})
    with pytest.raises(
        DefinitionError, match="<travellers 1 in travel> cannot be sent to a process of its own"
    ):
        pack_item(RECONCILER, one)


def test_a_claim_is_a_plain_value() -> None:
    claim = replace(item().claim, crashes=2)
    assert pickle.loads(pickle.dumps(claim)) == claim
