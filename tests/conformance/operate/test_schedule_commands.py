"""cli/commands/schedules: `penstock schedules`: everything of it, in words and as JSON."""

from __future__ import annotations

from penstock.testing import drain
from tests.conformance.operate.test_run_commands import Cli, cli  # noqa: F401 - a fixture


def test_a_schedule_from_its_making_to_its_end(cli: Cli) -> None:  # noqa: F811 - the fixture
    made = ("--name", "nightly", "--cron", "0 3 * * *", "--tz", "Europe/Berlin")
    assert cli("schedules", "create", f"{cli.module}:box", "7", *made).text.startswith("nightly: at 03:00")
    (listed,) = cli.on("schedules", "--json").json
    assert (listed["name"], listed["state"]) == ("nightly", "active")
    assert listed["when"] == "at 03:00 on every day, Europe/Berlin"
    assert "at 03:00 on every day" in cli.on("schedules").text
    assert cli.on("schedules", "--prefix", "other").text.strip() == "no schedules"
    assert len(cli.on("schedules", "next", "nightly", "-n", "3", "--json").json) == 3
    assert "03:00:00 CE" in cli.on("schedules", "next", "nightly").text

    assert cli.on("schedules", "pause", "nightly", "--why", "audit", "--by", "ann").text == "paused nightly\n"
    assert cli.on("schedules", "pause", "nightly").code == 1
    assert "paused: audit" in cli.on("schedules").text
    assert cli.on("schedules", "resume", "nightly", "--json").json == {"schedule": "nightly", "done": True}
    started = cli.on("schedules", "trigger", "nightly", "--json").json["started"]
    assert cli.app.job(started).status == "available"
    assert cli.on("schedules", "backfill", "nightly", "7d", "--json").json["ticks"] == 7
    drain(cli.app)
    ticks = cli.on("schedules", "ticks", "nightly", "--json").json
    assert [tick["outcome"] for tick in ticks] == ["fired"] * 8
    assert "fired" in cli.on("schedules", "ticks", "nightly", "--limit", "1").text
    acts = [act.act for act in cli.app.audit(by="ann")]
    assert acts == ["pause"]
    assert cli.on("schedules", "delete", "nightly", "--yes").text == "deleted nightly\n"
    assert cli.on("schedules", "delete", "nightly", "--yes").code == 1


def test_what_is_not_there_or_wrong_is_refused(cli: Cli) -> None:  # noqa: F811 - the fixture
    cli.on("schedules", "next", "nobody").refused(1, "no schedule 'nobody'")
    cli.on("schedules", "trigger", "nobody").refused(1, "no schedule 'nobody'")
    cli.on("schedules", "backfill", "nobody", "soon").refused(2, "soon")
    cli("schedules", "create", "nothing").refused(2, "module:task")
