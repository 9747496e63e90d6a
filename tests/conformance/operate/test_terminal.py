"""cli/output, cli/commands/watch: Commands as people at a terminal meet them: short ids, failures first, tables that
fit, waits and their answers.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock import Retry, wait_for
from penstock.cli import exit_codes
from penstock.cli.commands import watch
from penstock.cli.exit_codes import out
from penstock.testing import drain, travel
from penstock.values.ids import short_id
from tests.conformance.operate.helpers import register
from tests.conformance.operate.test_run_commands import Cli, cli

__all__ = ["cli"]

WIDTH, HEIGHT = 80, 24
TIME = re.compile(r"\b\d\d:\d\d:\d\d\b")


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns and 24 lines."""
    monkeypatch.setattr(out, "_width", WIDTH)
    monkeypatch.setattr(out, "_height", HEIGHT)


@pytest.fixture
def filled(cli: Cli) -> Cli:
    """Names, errors and reasons as long as those of a grown application."""
    app = cli.app

    @app.task(name="billing.invoices.send_monthly_receipt_to_customer", retries=0, queue="mail-marketing-eu")
    def send(number: int) -> int:
        raise ValueError(f"the card of customer {number} was refused by the bank, see invoice 12345678")

    send.enqueue_many([(number,) for number in range(3)])
    send.schedule("*/15 9-17 * * mon-fri", tz="America/New_York", name="office-hours", args=(1,))
    with app.acting(by="ann.smith@example.com", why="ticket 4711: the customer asked for it to be stopped"):
        run = app.pipelines["approve"].options(key="2026-11-order-4711").trigger(1)
        drain(app)
        run.cancel()
    register(app, "worker")
    return cli


LISTINGS = ["status", "jobs", "runs", "dead-letters", "processes", "audit", "schedules", "pipelines"]


@pytest.mark.one_database
@pytest.mark.usefixtures("screen")
@pytest.mark.parametrize("listing", LISTINGS)
def test_no_listing_is_wider_than_the_screen(filled: Cli, listing: str) -> None:
    text = filled.on(listing).text
    assert max(map(len, text.splitlines())) <= WIDTH or listing == "status", text
    times = [line for line in text.splitlines() if re.search(r"\d\d:\d\d", line)]
    assert all(TIME.search(line) for line in times if listing != "schedules"), text
    assert "office-hours" in text or listing != "schedules"
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-7", text), "ids are short"


@pytest.mark.one_database
@pytest.mark.usefixtures("screen")
def test_the_ids_in_a_table_are_taken_by_every_command(filled: Cli) -> None:
    ids = re.findall(r"^\S+\.\.\S+", filled.on("jobs").text, re.MULTILINE)
    assert len(ids) >= 3
    for id in ids:
        assert filled.on("show", id, "--json").json["job"]["id"].endswith(id[-4:])
    (run,) = re.findall(r"^\S+\.\.\S+", filled.on("runs").text, re.MULTILINE)
    assert filled.on("show", run, "--json").json["pipeline"] == "approve"
    assert filled.on("audit", "--subject", run).code == 0


def test_a_short_id_is_found_among_those_of_the_same_moment(cli: Cli) -> None:
    """A batch has ids that differ in their last digits only; a run and its first step stand beside each other."""
    jobs = cli.app.tasks["box"].enqueue_many([(number,) for number in range(50)])
    for job in jobs[::7]:
        assert cli.on("show", short_id(job.id), "--json").json["job"]["id"] == job.id
        assert (
            cli.on("show", short_id(job.id).replace("..", "…").upper(), "--json").json["job"]["id"] == job.id
        )
    run = cli.trigger("pack", [1])
    step = run.steps()[0]
    assert cli.on("show", short_id(run.id), "--json").json["id"] == run.id
    assert cli.on("show", short_id(step.id), "--json").json["job"]["id"] == step.id
    head = jobs[0].id[:13]
    cli.on("show", f"{head}..zz").refused(2, "hexadecimal")
    cli.on("show", f"{head}..ffffffffffff").refused(2, "no run and no job")
    cli.on("cancel", f"{head}..{jobs[0].id[-1]}").refused(2, "several ids")
    drain(cli.app)
    failed = cli.app.tasks["box"].enqueue_many([(-1,), (-2,)])
    drain(cli.app)
    assert cli.on("retry", *[short_id(job.id) for job in failed]).code == 0


@pytest.mark.one_database
@pytest.mark.usefixtures("screen")
def test_a_run_of_five_hundred_steps_fits_a_screen(cli: Cli) -> None:
    run = cli.trigger("pack", [-1 if number % 100 == 7 else number for number in range(20, 520)])
    drain(cli.app)
    text = cli.on("show", short_id(run.id)).text
    assert len(text.splitlines()) <= HEIGHT, text
    table = text[text.index("attempts") :]
    assert "no box for -1" in table
    assert "succeeded  " not in table
    assert re.search(
        r"not listed: \d+ skipped \(box, ship\), \d+ succeeded; see\n  penstock show \S+ --all", text
    )
    assert max(map(len, text.splitlines())) <= WIDTH, text


@pytest.mark.one_database
def test_a_graph_of_many_steps_is_folded_too(cli: Cli) -> None:
    @cli.app.task(name="pass_on", retries=Retry(max=0))
    def pass_on(number: int) -> int:
        if number == 41:
            raise ValueError
        return number + 1

    @cli.app.pipeline(name="row")
    def row(number: int) -> Any:
        value: Any = number
        for index in range(60):
            value = pass_on.options(key=f"step_{index}")(value)
        return value

    run = row.trigger(0)
    drain(cli.app)
    text = cli.on("show", run.id).text
    assert "step_41" in text
    assert "and 59 more: 18 skipped, 41 succeeded" in text
    assert text.count("\n") < HEIGHT
    assert "step_17" in cli.on("show", run.id, "--all").text


def test_a_run_that_waits_names_the_command_that_answers(cli: Cli) -> None:
    @cli.app.pipeline(name="ask")
    def ask() -> Any:
        asked = wait_for("approve", timeout=3600, default="no")
        return [asked, wait_for("sign", timeout=60), wait_for("forever")]

    run = ask.trigger()
    text = cli.on("show", run.id).text
    for node, until in (
        ("approve", r' until [^ ]+ [^ ]+ \(then it has "no"\)'),
        ("sign", r" until [^ ]+ [^ ]+ \(then it fails\)"),
        ("forever", ""),
    ):
        said = rf"{node} waits since [^ ]+ [^ ]+ UTC{until}; answer with:\s+penstock signal {run.id} {node} VALUE"
        assert re.search(said, text), (said, text)
    assert "answer with" in cli.on("watch", run.id, "--timeout", "0.2").text
    assert cli.on("signal", run.id, "approve", "yes").code == 0
    assert "approve waits" not in cli.on("show", run.id).text
    cli.on("pause", run.id)
    assert f"paused; go on with: penstock resume {run.id}" in cli.on("show", run.id).text


def test_the_wait_of_an_element_names_its_path(cli: Cli) -> None:
    @cli.app.task(name="two")
    def two() -> list[int]:
        return [1, 2]

    @cli.app.pipeline(name="ask_each")
    def ask_each() -> Any:
        item = cli.app.tasks["box"].map(two())
        return wait_for("fine", after=[item]).collect()

    run = ask_each.trigger()
    drain(cli.app)
    text = cli.on("show", run.id).text
    assert f"penstock signal {run.id} fine VALUE --path 1" in text
    assert cli.on("signal", run.id, "fine", "1", "--path", "1").code == 0


def test_watch_ends_with_what_it_watches(cli: Cli) -> None:
    good, bad, job = cli.trigger("pack", [1]), cli.trigger("pack", [-1]), cli.app.tasks["box"].enqueue(-3)
    assert cli.on("watch", job.id, "--timeout", "0", "--json").json == {"id": job.id, "status": "available"}
    with cli.worked_on():
        answers = [cli.on("watch", id) for id in (short_id(good.id), bad.id, job.id)]
    assert [answer.code for answer in answers] == [0, 1, 1]
    for answer, words in zip(
        answers, ("pack: succeeded", "pack: halted", "failed; see: penstock"), strict=True
    ):
        assert words in answer.text
    cli.on("watch", "00000000").refused(2, "no run and no job")
    later = cli.app.tasks["box"].options(delay=100).enqueue(1)
    assert "box: scheduled, due " in cli.on("watch", later.id, "--timeout", "0.2").text
    travel(cli.app, 101)
    drain(cli.app)
    assert cli.on("watch", later.id).code == 0


def test_run_wait_says_the_id_before_it_waits(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    said, look = exit_codes.err.print, watch._look

    def noted_print(*words: Any, **how: Any) -> None:
        seen.append(str(words[0]))
        said(*words, **how)

    def noted_look(*given: Any) -> Any:
        seen.append("looked")
        return look(*given)

    monkeypatch.setattr(exit_codes.err, "print", noted_print)
    monkeypatch.setattr(watch, "_look", noted_look)
    cli.run("pack", "[1]", "--wait", "--timeout", "0", "--json")
    (run,) = cli.app.runs()
    assert seen.index(f"run {run.id}") < seen.index("looked")


def test_a_run_in_line_says_why_it_waits_and_where(cli: Cli) -> None:
    @cli.app.task(name="same")
    def same(number: int) -> int:
        return number

    limited = cli.app.flow("in_line", max_running=1).start(same).wait_for("go")
    runs = [limited.trigger(n) for n in range(3)]
    drain(cli.app)
    told = "waits in line, 1 before it: max_running of in_line is 1; 1 run is under way"
    assert told in " ".join(cli.on("show", runs[2].id).text.split())
    assert told in " ".join(cli.on("explain", runs[2].id).text.split())


@pytest.mark.one_database
@pytest.mark.usefixtures("screen")
@pytest.mark.parametrize("command", ["status", "doctor"])
def test_sentences_are_not_wider_than_the_screen(filled: Cli, command: str) -> None:
    text = filled.on(command).text
    lines = [line for line in text.splitlines() if "sqlite:" not in line and "/" not in line]
    wide = [line for line in lines if len(line) > WIDTH and not line.startswith(("queue", "mail"))]
    assert not wide, text
    assert command != "doctor" or re.search(r"3 dead letters; of\s+billing.invoices", text), text


@pytest.mark.one_database
@pytest.mark.usefixtures("screen")
def test_skipped_steps_of_a_run_are_one_line_and_have_no_attempt(cli: Cli) -> None:
    @cli.app.task(name="fail_at", retries=0)
    def fail_at(number: int) -> None:
        assert number

    @cli.app.pipeline(name="wide")
    def wide(numbers: list[int]) -> Any:
        return fail_at.map(numbers).collect()

    run = wide.trigger([0, *range(20, 60)])
    drain(cli.app)
    skipped = [step for step in run.steps() if step.status == "skipped"]
    assert len(skipped) > 30
    assert {(step.started_at, len(step.attempts())) for step in skipped} == {(None, 0)}
    text = cli.on("jobs").text
    assert text.count("skipped") == 1, text
    assert re.search(rf"and {len(skipped) - 1} more steps of run \S+", " ".join(text.split())), text
    assert cli.on("jobs", "--status", "skipped").text.count("skipped") == len(skipped)
    listed = [each for each in cli.on("jobs", "--json").json if each["status"] == "skipped"]
    assert {(each["attempt"], each["claimed_at"]) for each in listed} == {(0, None)}
    assert cli.app.job(skipped[0].id).started_at is None


def test_a_run_in_line_names_its_limit_and_the_missing_worker(cli: Cli) -> None:
    @cli.app.pipeline(name="one_by_one", max_running=1)
    def one_by_one() -> Any:
        return cli.app.tasks["box"](1)

    run = one_by_one.trigger()
    for text in (cli.on("show", run.id).text, cli.on("explain", run.id).text):
        assert "none before it: max_running of one_by_one is 1; no runs are under way" in text
        assert "no worker is running that would start it: penstock worker MODULE:APP" in text
    register(cli.app, "worker")
    assert "no worker is running" not in cli.on("show", run.id).text


@pytest.mark.one_database
def test_the_doctor_and_check_count_alike(cli: Cli) -> None:
    box = cli.app.tasks["box"]
    box.enqueue(-1)
    box.schedule("@daily", name="daily", args=(1,))
    drain(cli.app)
    counted = re.search(r"\d+ tasks, \d+ pipelines", cli("check", f"{cli.module}:app").text)
    assert counted is not None
    text = cli("doctor", "--app", f"{cli.module}:app").text
    assert f"all waiting work is for the app ({counted[0]})" in text
    assert "1 dead letter; of box (retries_exhausted)" in text
    assert "1 schedule, 0 paused; none is late" in text
