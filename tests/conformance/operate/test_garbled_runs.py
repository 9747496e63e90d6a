"""operate/runs, pipelines/advance/read: a run or a definition that cannot be read keeps no other from being shown."""

from __future__ import annotations

import pytest

from penstock.testing import drain
from tests.conformance.operate.test_run_commands import Cli, cli
from tests.conformance.rows import rows

__all__ = ["cli"]

GARBLE_REASONS = "UPDATE {runs} SET reasons = :text WHERE id = :id"
GARBLE_DEFINITION = "UPDATE {definitions} SET text = :text WHERE hash = :hash"


@pytest.mark.parametrize("text", ["nope", "", "5", "null", "{}"])
def test_reasons_that_cannot_be_read_are_shown_as_they_are(cli: Cli, text: str) -> None:
    bad, good = cli.trigger("pack", [1]), cli.trigger("pack", [2])
    cli.app.database.in_transaction(lambda tx: tx.run(GARBLE_REASONS, id=bad.id, text=text))
    listed = cli("runs", "--database", cli.url, "--json")
    assert {run["id"]: run["reasons"] for run in listed.json} == {bad.id: [text], good.id: []}
    assert cli("show", bad.id, "--database", cli.url).code == 0
    drain(cli.app)
    assert (bad.status, good.status) == ("succeeded", "succeeded"), "nor do they keep the run from its end"


@pytest.mark.parametrize("text", ["nope", "5", "{}", '{"format": 99}', "[" * 100_000])
def test_a_definition_that_cannot_be_read_is_counted(cli: Cli, text: str) -> None:
    run, other = cli.trigger("pack", [1]), cli.trigger("approve", 1)
    cli.app.database.in_transaction(lambda tx: tx.run(GARBLE_DEFINITION, hash=run.definition, text=text))
    listed = {one["pipeline"]: one for one in cli("pipelines", "--database", cli.url, "--json").json}
    assert (listed["pack"]["versions"], listed["pack"]["definition"]) == (1, "")
    assert listed["approve"]["definition"] == other.definition
    assert len(rows(cli.app, "SELECT hash FROM {definitions}")) == 2
    cli("show", run.id, "--database", cli.url).refused(2, run.definition, "cannot be read", "backup")
    cli("signal", run.id, "go", "5", "--database", cli.url).refused(
        2, run.definition, "cannot be read", "backup"
    )
    cli("diff", f"{cli.module}:pack", run.definition[:12]).refused(2, "cannot be read")
    assert cli("explain", run.id, "--database", cli.url).code in (0, 2)


def test_a_definition_that_is_missing_is_told_by_every_command(cli: Cli) -> None:
    run = cli.trigger("approve", 1)
    drain(cli.app)
    cli.app.database.in_transaction(lambda tx: tx.run("DELETE FROM {definitions}"))
    for words in (("show", run.id), ("signal", run.id, "go", "5")):
        cli(*words, "--database", cli.url).refused(2, run.definition, "is missing", "backup")
