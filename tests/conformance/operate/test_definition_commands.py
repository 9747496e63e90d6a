"""cli/commands/definitions: diff and migrate-run, as the command line calls them."""

from __future__ import annotations

from penstock.testing import drain
from tests.conformance.operate.run_shop import make
from tests.conformance.operate.test_run_commands import Answer, Cli, cli

__all__ = ["cli"]


def test_a_run_of_the_same_definition_has_no_difference(cli: Cli) -> None:
    run = cli.trigger("pack", [1, 2])
    answer = cli("diff", run.id, "--app", f"{cli.module}:app")
    assert (answer.code, answer.text.strip()) == (0, f"pack {run.definition[:12]}: no difference")
    assert "not the app's own" not in cli("show", run.id, "--app", f"{cli.module}:app").text
    assert cli("migrate-run", run.id, "--app", f"{cli.module}:app").text.endswith("definition already\n")


def test_a_run_of_an_older_definition_is_told_and_moved(cli: Cli) -> None:
    old = make(cli.url, old=True)
    run, app = old.pipelines["approve"].trigger(1), f"{cli.module}:app"
    answer = cli("diff", run.id, "--app", app)
    assert answer.code == 1
    assert "- note" in answer.text
    told = cli("diff", run.id[:30], "--app", app, "--json")
    assert (told.code, told.json["removed"], told.json["added"]) == (1, ["note"], [])
    shown = cli("show", run.id, "--app", app)
    assert f"its definition is not the app's own any more (1 removed): penstock diff {run.id}" in shown.text
    assert cli("show", run.id, "--app", app, "--json").json["current"] is False
    assert cli("show", run.id, "--database", cli.url, "--json").json["current"] is None
    same = cli("diff", f"{cli.module}:approve", run.definition[:10])
    assert (same.code, same.text) == (1, answer.text)
    assert "goes on with the app's definition" in cli("migrate-run", run.id, "--app", app).text
    assert cli("diff", run.id, "--app", app).code == 0
    old.close()


def test_what_cannot_be_is_refused_in_one_line(cli: Cli) -> None:
    run, app = cli.trigger("pack", [1]), f"{cli.module}:app"
    cli("diff", run.id, "abc", "--app", app).refused(2, "penstock diff shop:enrich_users HASH")
    cli("diff", f"{cli.module}:pack").refused(2, "against which definition?")
    cli("diff", f"{cli.module}:pack", "f00").refused(2, "there is none", run.definition[:12])
    cli("diff", run.id, "--database", cli.url).refused(2, "knows no pipeline 'pack'")
    other = make(cli.url, old=True)
    moved = other.pipelines["pack"].trigger([1])
    refused: Answer = cli("migrate-run", moved.id, "--app", app)
    refused.refused(1, "stays with its definition", "step 'note'")
    other.close()


def test_revive_with_the_definition_of_now_and_rerun(cli: Cli) -> None:
    old, app = make(cli.url, old=True), f"{cli.module}:app"
    run = old.pipelines["pack"].trigger([1, -2])
    drain(old)
    assert run.status == "halted"
    cli("revive", run.id, "--current", "--step", "note", "--app", app).refused(2, "--current")
    told = cli("revive", run.id, "--current", "--app", app, "--json").json
    drain(cli.app)
    revived = cli.app.run(told["run"])
    assert {step.key for step in revived.steps() if step.status == "succeeded"} == {"box"}
    answer = cli("rerun", revived.id, "[1, 2]", "--app", app)
    assert answer.text.startswith(f"{revived.id} is run again as ")
    again = cli.app.run(answer.text.split()[-1])
    drain(cli.app)
    assert again.result(0) == "30 shipped"
    assert f"re-run of {revived.id}" in cli("show", again.id, "--app", app).text
    assert cli("runs", "--database", cli.url, "--json").json[0]["rerun_of"] == revived.id
    cli("rerun", cli.trigger("approve", 1).id, "--app", app).refused(1, "running", "has ended")
    old.close()


def test_doctor_knows_that_pipelines_are_steps_of_others(cli: Cli) -> None:
    cli.trigger("bundle", [1])
    findings = cli("doctor", "--app", f"{cli.module}:app", "--json").json
    assert [finding["level"] for finding in findings if finding["check"] == "tasks"] == ["ok"]


def test_pipelines_are_listed_with_what_they_are_for_and_what_is_under_way(cli: Cli) -> None:
    app = f"{cli.module}:app"
    empty = {entry["pipeline"]: entry for entry in cli("pipelines", "--app", app, "--json").json}
    assert sorted(empty) == sorted(cli.app.pipelines)
    assert (empty["pack"]["versions"], empty["pack"]["under_way"], empty["pack"]["steps"]) == (0, 0, 2)
    make(cli.url, old=True).pipelines["pack"].trigger([1])
    cli.trigger("pack", [1])
    cli.trigger("approve", 1)
    drain(cli.app)
    told = {entry["pipeline"]: entry for entry in cli("pipelines", "--app", app, "--json").json}
    assert told["pack"] == {
        "pipeline": "pack",
        "description": "Boxes for all items, shipped together.",
        "parameters": ["items", "note"],
        "steps": 2,
        "definition": cli.app.pipelines["pack"].definition.hash,
        "versions": 2,
        "under_way": 0,
    }
    assert told["approve"]["under_way"] == 1
    without_code = {entry["pipeline"]: entry for entry in cli.on("pipelines", "--json").json}
    assert sorted(without_code) == ["approve", "pack"]
    assert "Boxes for all" in cli("pipelines", "--app", app).text
