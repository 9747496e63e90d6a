"""cli/commands/audit, queue/audit: every command that changes something says who and why, and `penstock audit` tells
it again.
"""

from __future__ import annotations

from typing import Any

import pytest
import typer

from penstock.cli.main import build
from penstock.testing import drain
from penstock.values.actor import this_process
from tests.conformance.operate.test_run_commands import Cli, cli  # noqa: F401 - a fixture

CHANGING = {
    "cancel",
    "doctor",
    "enqueue",
    "fork",
    "migrate-run",
    "pause",
    "prune",
    "rerun",
    "resume",
    "retry",
    "revive",
    "run",
    "signal",
    "then",
}
LETTERS = {"retry", "discard"}
SCHEDULES = {"backfill", "create", "delete", "pause", "resume", "trigger"}
LOOKING = {
    "audit",
    "check",
    "diff",
    "explain",
    "health",
    "jobs",
    "pipelines",
    "processes",
    "reconcilers",
    "runs",
    "show",
    "status",
    "token",
    "watch",
}
OTHERS = {"dashboard", "dead-letters", "demo", "mcp", "migrate", "queues", "schedules", "worker"}


def test_every_command_either_looks_or_says_who_and_why() -> None:
    root: Any = typer.main.get_command(build())
    told = {name for name, command in root.commands.items() if _options(command) >= {"--by", "--why"}}
    assert told == CHANGING
    assert root.commands.keys() == CHANGING | LOOKING | OTHERS, "a new command: does it change something?"
    letters = root.commands["dead-letters"].commands
    assert {name for name, command in letters.items() if _options(command) >= {"--by", "--why"}} == LETTERS
    schedules = root.commands["schedules"].commands
    assert {
        name for name, command in schedules.items() if _options(command) >= {"--by", "--why"}
    } == SCHEDULES
    queues = root.commands["queues"].commands
    assert all(_options(command) >= {"--by", "--why"} for command in queues.values())


def _options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_the_trail_of_a_run_from_its_trigger_to_its_end(cli: Cli) -> None:  # noqa: F811 - the fixture
    id = cli.run("approve", "1", "--by", "ann", "--why", "month end").text.strip()
    drain(cli.app)
    for command in ("pause", "resume"):
        assert cli.on(command, id, "--by", "bob", "--why", "looking").code == 0
    assert cli.on("signal", id, "approve", "yes", "--why", "fine").code == 0
    assert cli.on("signal", id, "approve", "no", "--by", "late").code == 1
    told = cli.on("audit", "--subject", id[:-4], "--json").json
    assert [(act["act"], act["by"], act["why"]) for act in reversed(told)] == [
        ("trigger", "ann", "month end"),
        ("pause", "bob", "looking"),
        ("resume", "bob", "looking"),
        ("signal", this_process(), "fine"),
    ]
    assert told[0]["detail"] == {"signal": "approve"}
    assert [act["act"] for act in cli.on("show", id, "--json").json["audit"]] == [act["act"] for act in told]
    shown = cli.on("show", id).text
    assert "month end" in shown
    assert shown.index("trigger") < shown.index("resume")


def test_the_trail_of_jobs_and_of_what_has_no_subject(cli: Cli) -> None:  # noqa: F811 - the fixture
    first = cli("enqueue", f"{cli.module}:box", "--by", "ann", "--", "-1").text.strip()
    second = cli.app.tasks["box"].enqueue(-2).id
    drain(cli.app)
    assert cli.on("retry", first, "--by", "ann", "--why", "again").code == 0
    assert cli.on("dead-letters", "discard", second, "--by", "bob").code == 0
    assert cli.on("cancel", first, "--by", "ann").code == 0
    assert cli.on("prune", "--older-than", "0s", "--by", "carol", "--why", "disk").code == 0
    acts = [(act["by"], act["act"], act["kind"]) for act in reversed(cli.on("audit", "--json").json)]
    assert acts == [
        ("ann", "enqueue", "job"),
        ("ann", "retry", "job"),
        ("bob", "discard", "job"),
        ("ann", "cancel", "job"),
        ("carol", "prune", "installation"),
    ]
    assert [act["act"] for act in cli.on("audit", "--by", "bob", "--since", "1h", "--json").json] == [
        "discard"
    ]
    text = cli.on("audit", "--subject", second).text
    assert "discard" in text, "its subject is gone, its trail is not"
    assert cli.on("audit", "--since", "1ms").text.strip() == "nothing was done"


def test_a_job_is_shown_with_its_trail(cli: Cli) -> None:  # noqa: F811 - the fixture
    job = cli.app.tasks["box"].options(delay=60).enqueue(1)
    assert cli.on("cancel", job.id, "--by", "ann", "--why", "ordered twice").code == 0
    assert "ordered twice" in cli.on("show", job.id).text
    assert cli.on("show", job.id, "--json").json["audit"][0]["by"] == "ann"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("audit", "--since", "soon"), "since='soon'"),
        (("audit", "--subject", "abc"), "there is no run and no job"),
    ],
)
def test_questions_that_cannot_be_answered(cli: Cli, arguments: tuple[str, ...], words: str) -> None:  # noqa: F811
    cli.on(*arguments).refused(2, words)


def test_a_name_that_cannot_be_stored_is_refused_and_nothing_done(cli: Cli) -> None:  # noqa: F811 - the fixture
    run = cli.trigger("approve", 1)
    cli.on("pause", run.id, "--by", "").refused(2, "acting(...): by=''")
    assert run.status == "running"


def test_a_token_is_made_and_used_on_the_command_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    run = cli.trigger("approve", 1)
    drain(cli.app)
    cli.on("token", run.id, "approve").refused(2, "PENSTOCK_SECRET")
    monkeypatch.setenv("PENSTOCK_SECRET", "a secret of sixteen and more")
    cli.on("token", run.id, "aprove").refused(1, "Did you mean 'approve'")
    token = cli.on("token", run.id[:-4], "approve", "--expires", "2h").text.strip()
    told = cli.on("token", run.id, "approve", "--json").json
    assert (told["run"], told["signal"]) == (run.id, "approve")
    cli.on("signal", "--token", token + "x").refused(1, "not made by this installation")
    cli.on("signal", run.id, "approve", "--token", token).refused(2, "names its run and signal itself")
    cli.on("signal", run.id).refused(2, "which signal?")
    answer = cli.on("signal", "--token", token, '{"fine": true}', "--by", "ann", "--why", "looks good")
    assert answer.text == f"{run.id} goes on\n"
    cli.on("signal", "--token", told["token"]).refused(1, "was answered before")
    drain(cli.app)
    assert run.result(0)[1] == {"fine": True}
    (act,) = [act for act in cli.on("audit", "--subject", run.id, "--json").json if act["act"] == "signal"]
    assert (act["by"], act["why"]) == ("ann", "looks good")
    assert "a secret of sixteen" not in cli.on("doctor", "--json").text
