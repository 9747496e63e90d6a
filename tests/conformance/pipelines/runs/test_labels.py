"""pipelines/advance/run_rows: Labels: words by which runs are found again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Penstock
from penstock.database.transaction import Transaction
from penstock.errors import ConfigurationError
from penstock.testing import drain


@pytest.fixture
def report(app: Penstock) -> Any:
    broken = {"it is"}

    @app.task(name="load", retries=0)
    def load(fails: bool) -> str:
        if fails and broken:
            broken.clear()
            raise ValueError("broken")
        return "loaded"

    @app.pipeline(name="report")
    def report(fails: bool = False) -> Any:
        return load(fails)

    return report


def test_runs_are_found_by_their_labels(app: Penstock, report: Any) -> None:
    one = report.options(labels=["tenant:7", "nightly", "nightly"]).trigger()
    two = report.options(labels="nightly", delay=5).trigger()
    report.trigger()
    many = report.options(labels=["bulk"]).trigger_many([(), ()])
    assert (one.labels, two.labels, many[1].labels) == (["nightly", "tenant:7"], ["nightly"], ["bulk"])
    assert app.runs(label="nightly") == [two, one]
    assert app.runs(label="Nightly") == app.runs(label="tenant") == []
    assert app.runs(label="nightly", status="pending", pipeline=report) == [two]
    assert asyncio.run(app.runs_async(label="bulk")) == many[::-1]


def test_the_run_that_has_the_key_keeps_its_own_labels(app: Penstock, report: Any) -> None:
    first = report.options(key="k", labels=["a"]).trigger()
    assert report.options(key="k", labels=["b"]).trigger() == first
    assert (first.labels, app.runs(label="b")) == (["a"], [])


def test_what_goes_on_or_repeats_keeps_them_and_what_is_pruned_takes_them_along(
    app: Penstock, report: Any
) -> None:
    run = report.options(labels=["a", "b"]).trigger(True)
    drain(app)
    revived = run.revive()
    drain(app)
    again = revived.rerun()
    drain(app)
    assert [one.labels for one in (revived, again)] == [["a", "b"]] * 2
    app.engine.chores.prune(age=-1)

    def left(tx: Transaction) -> int:
        return len(tx.rows("SELECT label FROM {run_labels}"))

    assert app.database.read(left) == 0


@pytest.mark.parametrize(
    "labels", [7, {"tenant": 7}, [7], [""], ["x" * 201], ["a\0"], [str(n) for n in range(51)]]
)
def test_what_is_no_label_is_refused_before_anything_is_written(
    app: Penstock, report: Any, labels: object
) -> None:
    with pytest.raises(ConfigurationError, match="label"):
        report.options(labels=labels).trigger()
    assert app.runs() == []
