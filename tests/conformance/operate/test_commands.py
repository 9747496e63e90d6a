"""cli/commands: the commands, called as the command line calls them: what they show, what they change, how they end."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest

from penstock import Penstock
from penstock.cli import output
from penstock.cli.exit_codes import PipeSafeConsole
from penstock.cli.output import show_table
from penstock.queue.unknown_tasks import KNOWS, marks
from penstock.testing import drain, travel
from tests.commands import call
from tests.conformance.operate.helpers import enqueue, register, take

LISTINGS = ["status", "jobs", "dead-letters", "processes"]


@dataclass
class Answer:
    code: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@pytest.fixture
def penstock(app: Penstock, database_url: str) -> Callable[..., Answer]:
    """`penstock("jobs", "--limit", "3")` on this database."""
    app.prepare()

    def run(*arguments: str) -> Answer:
        result = call(*arguments, "--database", database_url)
        return Answer(result.exit_code, result.output)

    return run


Run = Callable[..., Answer]


@pytest.mark.parametrize("command", LISTINGS)
def test_every_listing_has_json_and_an_empty_state(penstock: Run, command: str) -> None:
    assert penstock(command).code == 0
    assert penstock(command).text.strip()
    assert penstock(command, "--json").code == 0
    assert penstock(command, "--json").json is not None


def test_status_shows_queues_and_processes(app: Penstock, penstock: Run) -> None:
    enqueue(app, "quick", 1, queue="mail")
    register(app)
    (queue,) = penstock("status", "--json").json["queues"]
    assert (queue["queue"], queue["available"]) == ("mail", 1)
    assert "1 all" in penstock("status").text
    assert 'penstock_queue_jobs{queue="mail",status="available"} 1' in penstock("status", "--prometheus").text


def test_jobs_are_listed_filtered_and_paged(app: Penstock, penstock: Run) -> None:
    made = [enqueue(app, "quick", number) for number in range(3)]
    enqueue(app, "fail", 1)
    page = penstock("jobs", "--task", "quick", "--limit", "2", "--json").json
    assert [job["id"] for job in page] == [made[2].id, made[1].id]
    rest = penstock("jobs", "--task", "quick", "--before", page[-1]["id"], "--json").json
    assert [job["id"] for job in rest] == [made[0].id]
    assert f"--before {made[1].id}" in penstock("jobs", "--task", "quick", "--limit", "2").text
    assert page[0]["created_at"].endswith("Z")


def test_a_wrong_status_is_answered_with_the_nearest(penstock: Run) -> None:
    answer = penstock("jobs", "--status", "runnin")
    assert answer.code == 2
    assert "'running'" in answer.text


def test_show_tells_a_jobs_story(app: Penstock, penstock: Run) -> None:
    job = enqueue(app, "fail", 7)
    drain(app)
    text = penstock("show", job.id[:-2]).text
    for part in (
        job.id,
        "fail",
        "every attempt raised an error",
        "ValueError: number 7",
        "Traceback",
        "errored",
    ):
        assert part in text
    told = penstock("show", job.id, "--json").json
    assert told["job"]["status"] == "failed"
    assert told["attempts"][0]["error"] == "number 7"


def test_show_says_why_no_worker_takes_what_is_ready(app: Penstock, penstock: Run) -> None:
    job = enqueue(app, "quick", 1)
    assert "waits for   a worker: no worker is running" in penstock("show", job.id).text
    register(app, details=json.dumps({KNOWS: marks(["fail"])}))
    nobody = "no live worker of queue 'default' knows task 'quick'"
    assert f"waits for   a worker: {nobody}" in penstock("show", job.id).text
    assert penstock("show", job.id, "--json").json["obstacle"] == nobody
    register(app)
    assert penstock("show", job.id, "--json").json["obstacle"] is None
    drain(app)
    assert penstock("show", job.id, "--json").json["obstacle"] is None


def test_show_of_what_is_not_there_is_an_error(penstock: Run) -> None:
    assert penstock("show", "0123").code == 2
    assert "no job" in penstock("show", "0123").text


def test_processes_are_shown_with_what_they_hold(app: Penstock, penstock: Run) -> None:
    enqueue(app, "quick", 1)
    process = register(app)
    take(app, process)
    assert process in penstock("processes").text
    (row,) = penstock("processes", "--json").json
    assert (row["id"], row["holding"]) == (process, 1)


def test_health_answers_by_its_code_for_every_role(app: Penstock, penstock: Run) -> None:
    assert (penstock("health").code, "no worker process on " in penstock("health").text) == (1, True)
    assert penstock("health", "--role", "wroker").code == 2

    async def look() -> None:
        async with app.worker(role="advancer"):
            asked = [[], ["--role", "advancer"], ["--role", "worker"], ["--everywhere"]]
            assert [penstock("health", *some).code for some in asked] == [0, 0, 1, 0]
            (row,) = penstock("health", "--json").json["alive"]
            assert (row["role"], "knows" in row["details"]) == ("advancer", False)

    asyncio.run(look())
    register(app, role="worker")
    assert [penstock("health", *some).code for some in ([], ["--everywhere"])] == [1, 0], "on another host"
    register(app, role="supervisor")
    app.database.in_transaction(lambda tx: tx.run("UPDATE {processes} SET heartbeat_at = 0"))
    silent = penstock("health", "--everywhere")
    assert (silent.code, "was heard of" in silent.text) == (1, True)


def test_cancel_and_retry_say_what_they_did_by_their_code(app: Penstock, penstock: Run) -> None:
    job = enqueue(app, "quick", 1, delay=60)
    assert penstock("cancel", job.id).code == 0
    again = penstock("cancel", job.id)
    assert (again.code, "was over already" in again.text) == (1, True)
    assert penstock("retry", job.id, "--json").json == {job.id: True}
    assert job.status == "available"
    assert penstock("retry", job.id).code == 1


def test_dead_letters_are_retried_by_id_by_filter_and_all(app: Penstock, penstock: Run) -> None:
    jobs = [enqueue(app, "fail", number, queue=queue) for number, queue in enumerate(("a", "b", "b", "c"))]
    drain(app)
    assert len(penstock("dead-letters", "--json").json) == 4
    assert len(penstock("dead-letters", "list", "--queue", "b", "--json").json) == 2
    assert penstock("dead-letters", "retry").code == 2, "nothing was chosen"
    assert "retried 1 of 1" in penstock("dead-letters", "retry", jobs[0].id).text
    assert "retried 2 of 2" in penstock("dead-letters", "retry", "--queue", "b").text
    assert penstock("dead-letters", "retry", "--all", "--json").json == {"retried": [jobs[3].id]}
    assert penstock("dead-letters", "--json").json == []


def test_dead_letters_are_discarded(app: Penstock, penstock: Run) -> None:
    job = enqueue(app, "fail", 1)
    drain(app)
    assert (
        "discarded 1 of 1"
        in penstock("dead-letters", "discard", "--reason", "retries_exhausted", "--yes").text
    )
    assert job.status == "cancelled"
    assert penstock("dead-letters", "discard", job.id).code == 1


def test_prune_takes_an_age(app: Penstock, penstock: Run) -> None:
    enqueue(app, "quick", 1)
    drain(app)
    assert "pruned 0 jobs and runs\n" in penstock("prune", "--older-than", "1h").text
    assert penstock("prune", "--older-than", "0s", "--json").json == {"pruned": 1}
    assert penstock("prune", "--older-than", "soon").code == 2
    assert "a hundred years" in penstock("prune", "--older-than", "99999999999999d").text
    assert penstock("prune").code == 2


def test_migrate_prints_or_runs(empty_database_url: str) -> None:
    def migrate(*options: str) -> Answer:
        result = call("migrate", *options, "--database", empty_database_url)
        return Answer(result.exit_code, result.output)

    printed = migrate("--sql")
    assert "CREATE TABLE" in printed.text
    assert "applied" in migrate().text
    assert "nothing to do" in migrate().text


def test_a_database_that_was_never_migrated_is_not_touched(
    app_on: Callable[..., Penstock], empty_database_url: str
) -> None:
    app_on(empty_database_url).database.read(lambda tx: tx.row("SELECT 1"))
    result = call("status", "--database", empty_database_url)
    assert result.exit_code == 2
    assert "penstock migrate" in result.output


def test_doctor_ends_with_one_when_it_found_something(app: Penstock, penstock: Run) -> None:
    register(app)
    assert penstock("doctor").code == 0
    enqueue(app, "fail", 1)
    drain(app)
    answer = penstock("doctor")
    assert answer.code == 1
    assert "penstock dead-letters" in answer.text
    levels = {finding["check"]: finding["level"] for finding in penstock("doctor", "--json").json}
    assert levels["dead letters"] == "warning"


def test_a_silent_process_is_marked(app: Penstock, penstock: Run) -> None:
    with travel(app, -100):
        register(app)
    assert "(silent)" in penstock("processes").text


def test_who_may_be_silent_for_longer_than_we_may_is_not_marked(app: Penstock, penstock: Run) -> None:
    with travel(app, -100):
        register(app, reap_after=500)
    assert "(silent)" not in penstock("processes").text


def test_show_tells_of_one_retry(app: Penstock, penstock: Run) -> None:
    @app.task(name="again", retries=1)
    def again() -> None:
        raise ValueError

    job = again.enqueue()
    drain(app)
    assert "1 retry, 0 crashes of 10" in penstock("show", job.id).text


STEERING = set("\r\x1b\x9b\x7f\x85\u2028\u2029")


def test_what_an_error_says_steers_no_terminal(app: Penstock, penstock: Run) -> None:
    said = "two\r\nlines \x1b[31m\x9b2J\x7f [/b]\u2028forged\x85forged\u2029forged"

    @app.task(name="rude", retries=0)
    def rude() -> None:
        raise ValueError(said)

    @app.pipeline(name="[/rude]")
    def pipeline() -> object:
        return rude()

    run = pipeline.trigger()
    drain(app)
    job = run.steps()[0].id
    for command in (("show", run.id), ("show", job), ("dead-letters",), ("runs",), ("jobs",)):
        answer = penstock(*command)
        assert answer.code == 0, answer.text
        assert not set(answer.text) & STEERING
    shown = penstock("show", job).text
    assert "lines \\x1b[31m\\x9b2J\\x7f [/b]\\u2028forged\\x85forged\\u2029forged" in shown
    told = penstock("show", job, "--json")
    assert not set(told.text) & STEERING
    assert said in told.json["attempts"][0]["error"]


def test_an_embedded_worker_says_which_queues_it_takes_from(app: Penstock, penstock: Run) -> None:
    enqueue(app, "quick", 1)

    async def work() -> tuple[list[dict[str, Any]], str]:
        async with app.worker(queues="mail:3", concurrency=4):
            return penstock("processes", "--json").json, penstock("doctor").text

    (process,), told = asyncio.run(work())
    assert process["details"].items() >= {"queues": "mail:3", "concurrency": 4}.items()
    assert "no live worker takes from queue 'default'" in told


@pytest.mark.one_database
@pytest.mark.parametrize("columns", [80, 40, 20])
def test_a_small_terminal_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    paper = StringIO()
    monkeypatch.setattr(output, "out", PipeSafeConsole(file=paper, width=columns))
    row = ("0123456789abcdef-0123", "mail", "succeeded", 12_345, "x" * 30)
    show_table(["id", "queue", "status", "attempts #", "error"], [row])
    text = paper.getvalue()
    assert all(word in text for word in ("0123456789abcdef-0123", "succeeded", "attempts", "12,345"))
    assert text.count("x") == 30
    assert "mai" in text
