"""cli/commands/runs, cli/commands/show_run: Commands about runs, called as the command line calls them: what they
show, what they change, how they end.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from penstock import Penstock
from penstock.cli.commands import show_run
from penstock.cli.commands import watch as watching
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.errors import DatabaseUnavailable
from penstock.operate import run_report
from penstock.pipelines.model.graph_view import Graph
from penstock.pipelines.run import Run
from penstock.queue.unknown_tasks import KNOWS, marks
from penstock.testing import drain
from penstock.values.ids import new_id
from tests.commands import call
from tests.conformance.operate.helpers import register
from tests.conformance.operate.run_shop import MODULE, make

NOBODY = "00000000-0000-7000-8000-000000000000"


@dataclass
class Answer:
    code: int
    text: str
    stdout: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    def refused(self, code: int, *words: str) -> None:
        """One line that says what is wrong and what to do."""
        assert self.code == code, self.text
        assert self.text.startswith("penstock: "), self.text
        assert self.text.count("\n") == 1, self.text
        for word in words:
            assert word in self.text


class Cli:
    """The command line on a database, and the app's other side."""

    def __init__(self, app: Penstock, url: str, module: str) -> None:
        self.app = app
        self.url = url
        self.module = module

    def __call__(self, *arguments: str) -> Answer:
        result = call(*arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Answer(result.exit_code, result.output, result.stdout)

    def on(self, *arguments: str) -> Answer:
        """A command that needs no code, only the database."""
        return self(*arguments, "--database", self.url)

    def run(self, pipeline: str, *arguments: str) -> Answer:
        return self("run", f"{self.module}:{pipeline}", *arguments)

    def trigger(self, pipeline: str, *arguments: Any) -> Run:
        return self.app.pipelines[pipeline].trigger(*arguments)

    @contextmanager
    def worked_on(self) -> Iterator[None]:
        """Another process works meanwhile."""
        over = threading.Event()

        def work() -> None:
            while not over.is_set():
                drain(self.app)
                over.wait(0.02)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@pytest.fixture
def cli(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    module = f"shop_{new_id().replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SHOP_DATABASE", database_url)
    app = make(database_url)
    app.prepare()
    yield Cli(app, database_url, module)
    app.close()


def test_run_triggers_and_tells_the_id(cli: Cli) -> None:
    id = cli.run("pack", "[1, 2]").text.strip()
    drain(cli.app)
    assert cli.app.run(id).result(0) == "30 shipped"
    told = cli.run("pack", "[3]", "note=by hand", "--key", "march", "--json").json
    assert (told["status"], told["result"]) == ("running", None)
    assert cli.run("pack", "[3]", "--key", "march").text.strip() == told["run"]
    drain(cli.app)
    assert cli.app.run(told["run"]).result(0) == "30 by hand"
    assert told["id"] == told["run"] == cli.on("show", told["id"], "--json").json["id"]


def test_a_task_can_be_run_as_a_pipeline_and_a_start_be_delayed(cli: Cli) -> None:
    id = cli.run("box", "7", "--delay", "60").text.strip()
    assert cli.app.run(id).status == "pending"
    for command in ("run", "then"):
        said = " ".join(cli(command, "--help").text.split())
        assert "or a task" in said
        assert "a run of that one step" in said


def test_run_wait_shows_the_graph_and_the_result(cli: Cli) -> None:
    with cli.worked_on():
        answer = cli.run("pack", "[1, 2]", "--wait", "--timeout", "60")
        told = cli.run("pack", "[1, 2]", "--wait", "--json").json
    assert answer.code == 0
    for part in ("pack: succeeded", "box: 2 succeeded", "ship after", "succeeded: 30 shipped"):
        assert part in answer.text
    assert (told["status"], told["result"], told["reasons"]) == ("succeeded", "30 shipped", [])


def test_run_wait_ends_with_one_and_the_errors_when_the_run_fails(cli: Cli) -> None:
    with cli.worked_on():
        answer = cli.run("pack", "[1, -2]", "--wait")
        told = cli.run("pack", "[1, -2]", "--wait", "--json")
    assert answer.code == told.code == 1
    for part in ("halted: retries_exhausted", "box[1]: ValueError: no box for -2", "penstock show"):
        assert part in answer.text
    assert (told.json["status"], told.json["reasons"]) == ("halted", ["retries_exhausted"])


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_run_wait_gives_up_watching_after_its_timeout(cli: Cli, options: tuple[str, ...]) -> None:
    answer = cli.run("pack", "[1]", "--wait", "--timeout", "0.1", *options)
    assert answer.code == 1
    assert "running" in answer.text
    assert options or "running still; it goes on" in answer.text


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_run_wait_watches_on_when_the_database_is_back(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """It ended with code 3, whatever became of the run, and did not tell which it was."""
    away, graph = [1, 2, 3], Run.graph

    def look(run: Run) -> Graph:
        if away:
            raise DatabaseUnavailable(f"away {away.pop()}. Wait.", "there")
        return graph(run)

    monkeypatch.setattr(watching, "PAUSE", 0.01)
    monkeypatch.setattr(Run, "graph", look)
    with cli.worked_on():
        answer = cli.run("pack", "[1]", "--wait", *options)
    assert answer.code == 0, answer.text
    assert answer.text.count("Watching on") == 1


def test_run_wait_tells_of_the_run_when_the_database_stays_away(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(_run: Run) -> Graph:
        raise DatabaseUnavailable("away. Wait.", "there")

    monkeypatch.setattr(Run, "graph", look)
    answer = cli.run("pack", "[1]", "--wait", "--timeout", "0")
    (run,) = cli.app.runs()
    assert answer.code == 3
    assert f"the run goes on: penstock watch {run.id}" in answer.text


def test_run_wait_says_that_there_is_no_worker(cli: Cli) -> None:
    nobody = "no worker is running"
    assert nobody in cli.run("pack", "[1]", "--wait", "--timeout", "0").text
    register(cli.app, "advancer")
    assert nobody in cli.run("pack", "[1]", "--wait", "--timeout", "0", "--json").text
    register(cli.app, "worker")
    assert nobody not in cli.run("pack", "[1]", "--wait", "--timeout", "0").text


@pytest.mark.parametrize(
    ("queues", "known", "obstacles"),
    [
        ("all", ["box", "ship"], []),
        ("mail,default", ["box", "ship", "other"], []),
        ("all", ["box"], ["no live worker of queue 'default' knows task 'ship'"]),
        ("mail", ["box", "ship"], ["no live worker takes from queue 'default'"]),
    ],
)
def test_run_wait_says_what_no_worker_would_take(
    cli: Cli, queues: str, known: list[str], obstacles: list[str]
) -> None:
    register(cli.app, "worker", details=json.dumps({"queues": queues, KNOWS: marks(known)}))
    text = cli.run("pack", "[1]", "--wait", "--timeout", "0").text
    assert [line.partition(";")[0] for line in text.splitlines() if "no live worker" in line] == obstacles


@pytest.mark.parametrize(
    ("target", "arguments", "words"),
    [
        ("pack", ("--timeout", "3", "[1]"), ("--wait",)),
        ("pack", (), ("items",)),
        ("pack", ("[1]", "note=x", "nothing=1"), ("nothing",)),
        ("pack", ("soon",), ("items",)),
        ("pck", ("[1]",), ("no 'pck'", "did you mean 'pack'?")),
        ("number", (), ("neither a pipeline nor a task", "int")),
        ("pack", ("[1]", "--key", ""), ("key=''", "give a text")),
        ("torn", ("1",), ("pipeline 'torn' cannot be described: ",)),
    ],
)
def test_run_refuses_what_makes_no_sense(
    cli: Cli, target: str, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    cli.run(target, *arguments).refused(2, *words)
    assert cli.app.runs() == []


def test_run_wait_refuses_a_timeout_that_is_no_time(cli: Cli) -> None:
    for timeout in ("nan", "-1"):
        assert cli.run("pack", "[1]", "--wait", "--timeout", timeout).code == 2
    assert cli.app.runs() == []


def test_run_needs_module_and_pipeline(cli: Cli) -> None:
    cli("run", "pack").refused(2, "module:pipeline")


def test_a_terminal_shows_a_live_picture(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    monkeypatch.setattr(watching, "out", console)
    run = cli.trigger("pack", [1, 2, -3])
    with cli.worked_on():
        assert watching.watch_run(cli.app, run, 60) == "halted"
    shown = screen.getvalue()
    for part in ("pack", "box", "ship", "2 succeeded", "1 failed", "skipped", "halted"):
        assert part in shown
    assert watching.watch_run(cli.app, cli.trigger("pack", [1]), 0.0) == "running"


def test_runs_are_listed_and_filtered(cli: Cli) -> None:
    assert "no runs" in cli.on("runs").text
    assert cli.on("runs", "--json").json == []
    good, bad = cli.trigger("pack", [1]), cli.trigger("pack", [-1])
    cli.run("approve", "1", "--key", "one", "--label", "vip", "--label", "tenant:7")
    (other,) = cli.app.runs(key="one")
    drain(cli.app)
    assert [row["id"] for row in cli.on("runs", "--json").json] == [other.id, bad.id, good.id]
    for options, wanted in (
        (("--pipeline", "pack"), [bad.id, good.id]),
        (("--status", "halted"), [bad.id]),
        (("--key", "one"), [other.id]),
        (("--label", "vip"), [other.id]),
        (("--label", "none"), []),
        (("--limit", "1"), [other.id]),
    ):
        assert [row["id"] for row in cli.on("runs", *options, "--json").json] == wanted
    assert "labels: tenant:7, vip" in cli.on("show", other.id).text
    text = cli.on("runs", "--status", "halted").text
    assert bad.id in text
    assert "retries_exhausted" in text
    cli.on("runs", "--status", "halt").refused(2, "'halted'")


def test_show_has_graph_steps_attempts_and_errors(cli: Cli) -> None:
    run = cli.trigger("pack", [1, 13, -2])
    drain(cli.app)
    text = cli.on("show", run.id[:-2]).text
    for part in (
        run.id,
        "pack: halted",
        "given: items=[1, 13, -2], note='shipped'",
        "box: 1 failed, 2 succeeded",
        "ship after",
        "every attempt raised an error",
        "box[2]",
        "ValueError: no box for -2",
        "errored",
        "not listed: 1 skipped (ship)",
    ):
        assert part in text, part
    assert "Boxes for all items, shipped together." in cli("show", run.id, "--app", f"{cli.module}:app").text
    told = cli.on("show", run.id, "--json").json
    assert (told["description"], told["arguments"]["items"]) == (None, [1, 13, -2])
    assert (told["pipeline"], told["status"], told["reasons"]) == ("pack", "halted", ["retries_exhausted"])
    graph = {node["key"]: node for node in told["graph"]}
    assert graph["box"]["counts"] == {"failed": 1, "succeeded": 2}
    steps = {(step["key"], *step["path"]): step for step in told["steps"]}
    outcomes = [attempt["outcome"] for attempt in steps["box", 1]["attempts"]]
    assert outcomes == ["errored", "succeeded"]
    assert steps["box", 0]["output"] == 10
    assert "Traceback" in steps["box", 2]["attempts"][1]["traceback"]


def test_show_reads_no_more_steps_than_it_shows(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may have millions. Those that failed are shown in any case, wherever they stand, and before all others."""
    run = cli.trigger("pack", [*range(20, 59), -2])
    drain(cli.app)
    read: list[int] = []

    def rows(tx: Transaction, *args: Any, **given: Any) -> list[Any]:
        found = fetch(tx, *args, **given)
        read.append(len(found))
        return found

    fetch = Transaction.rows
    monkeypatch.setattr(Transaction, "rows", rows)
    text = cli.on("show", run.id).text
    assert max(read) <= show_run.LISTED + 2, "so many steps, and their attempts"
    for part in ("box[39]", "no box for -2", "box: 1 failed, 39 succeeded"):
        assert part in text, part
    assert f"not listed: 1 skipped (ship), 39 succeeded; see\n  penstock show {run.id} --all" in text
    assert "box[20]" not in text
    text = cli.on("show", run.id, "--all").text
    assert text.index("box[39]") < text.index("box[0]") < text.index("run_halted")
    assert "not listed" not in text
    monkeypatch.setattr(show_run, "MOST_STEPS", 10)
    assert (
        f"not listed: 1 skipped (ship), 30 succeeded; see\n  penstock show {run.id} --json"
        in cli.on("show", run.id, "--all").text
    )
    assert len(cli.on("show", run.id, "--json").json["steps"]) == 41


def test_show_is_two_reads_and_a_few_statements(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    run = cli.trigger("pack", [1, 2, 3])
    drain(cli.app)
    reads: list[object] = []
    statements: list[str] = []
    execute, read = Transaction._execute, Database.read

    def counted(tx: Transaction, template: str, parameters: Any) -> Any:
        statements.append(template)
        return execute(tx, template, parameters)

    def counted_read(database: Database, work: Any, *args: Any, **given: Any) -> Any:
        reads.append(work)
        return read(database, work, *args, **given)

    monkeypatch.setattr(Transaction, "_execute", counted)
    monkeypatch.setattr(Database, "read", counted_read)
    assert "result: '60 shipped'" in cli.on("show", run.id).text
    assert len(reads) == 2, "one finds what the id names, the other reads the report"
    assert len(statements) <= 12, statements


def test_show_tells_a_long_result_in_part(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    run = cli.trigger("pack", [1], "x" * 5_000)
    drain(cli.app)
    text = cli.on("show", run.id).text
    assert f"xxx … (5,005 characters; all of it: penstock show {run.id} --json)" in text
    assert len(text.partition("result: ")[2]) < 1_200
    monkeypatch.setattr(run_report, "MOST_RESULT", 100)
    text = cli.on("show", run.id).text
    assert f"result: 5,005 characters, from a step; all of it: penstock show {run.id} --json" in text
    assert cli.on("show", run.id, "--json").json["result"] == "10 " + "x" * 5_000


def test_the_steps_of_show_come_in_pages(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the definition, then of the elements; a page may be full to the last place."""
    monkeypatch.setattr(run_report, "PAGE", 2)
    empty = cli.trigger("pack", [])
    runs = {width: cli.trigger("pack", list(range(1, width + 1))) for width in (1, 2, 3, 4)}
    pending = cli.app.pipelines["pack"].options(delay=3600).trigger([1])
    drain(cli.app)
    for width, run in runs.items():
        steps = cli.on("show", run.id, "--json").json["steps"]
        expected = [("box", [number]) for number in range(width)]
        assert [(step["key"], step["path"]) for step in steps] == [*expected, ("ship", [])]
        assert [step["output"] for step in steps][:-1] == [10 * number for number in range(1, width + 1)]
    assert [step["key"] for step in cli.on("show", empty.id, "--json").json["steps"]] == ["ship"]
    assert cli.on("show", pending.id, "--json").json["steps"] == []


def test_show_names_an_element_by_its_index(cli: Cli) -> None:
    run = cli.trigger("pack", [1] * 12)
    drain(cli.app)
    (step,) = [step for step in run.steps() if step.path == (11,)]
    assert f"{run.id}, step box[11]" in cli.on("show", step.id).text


def test_show_of_a_step_tells_its_element_and_no_arguments_of_its_own(cli: Cli) -> None:
    """The run has the arguments, and the steps before it have the rest."""
    run = cli.trigger("pack", [0, 7])
    drain(cli.app)
    shown = {step.path: cli.on("show", step.id).text for step in run.steps()}
    assert [path for path, text in shown.items() if "arguments" in text] == []
    assert "element     7\n" in shown[1,]
    assert "element" not in shown[()]
    assert "arguments" in cli.on("show", cli.app.tasks["box"].enqueue(1).id).text


def test_show_tells_the_result_and_the_lineage(cli: Cli) -> None:
    run = cli.trigger("pack", [1])
    drain(cli.app)
    assert "result: '10 shipped'" in cli.on("show", run.id).text
    assert cli.on("show", run.id, "--json").json["result"] == "10 shipped"
    old = cli.trigger("pack", [-1])
    drain(cli.app)
    new = old.revive()
    assert f"revived from {old.id}" in cli.on("show", new.id).text
    assert cli.on("show", new.id, "--json").json["revived_from"] == old.id


@pytest.mark.parametrize("command", ["show", "cancel", "retry"])
def test_what_is_neither_a_run_nor_a_job_is_refused(cli: Cli, command: str) -> None:
    cli.on(command, NOBODY).refused(2, "no run and no job", "penstock runs")
    cli.on(command, "xyz").refused(2, "hexadecimal")


@pytest.mark.parametrize("command", [("pause",), ("resume",), ("revive",), ("signal", "approve")])
def test_what_is_no_run_is_refused(cli: Cli, command: tuple[str, ...]) -> None:
    cli.on(command[0], NOBODY, *command[1:]).refused(2, "no run", "penstock runs")
    cli.trigger("pack", [1])
    cli.trigger("pack", [1])
    cli.on(command[0], "0", *command[1:]).refused(2, "several runs")


def test_cancel_reaches_runs_and_says_by_its_code_whether_it_did(cli: Cli) -> None:
    run, over = cli.trigger("approve", 1), cli.trigger("pack", [1])
    drain(cli.app)
    answer = cli.on("cancel", run.id, over.id, "--grace", "0")
    assert answer.code == 1
    assert f"{run.id} cancelled" in answer.text
    assert f"{over.id} was over already" in answer.text
    drain(cli.app)
    assert run.status == "cancelled"
    assert cli.on("cancel", run.id, "--json").json == {run.id: True}, "asking again is no error"


def test_pause_and_resume(cli: Cli) -> None:
    run = cli.trigger("pack", [1])
    assert "paused" in cli.on("pause", run.id).text
    assert "was paused already" in cli.on("pause", run.id).text
    assert drain(cli.app) == 0
    assert cli.on("resume", run.id, "--json").json == {run.id: True}
    assert "was not paused" in cli.on("resume", run.id).text
    drain(cli.app)
    assert run.result(0) == "10 shipped"
    cli.on("pause", run.id).refused(1, "succeeded", "only a running run")
    cli.on("resume", run.id).refused(1, "succeeded", "only a paused run")


def test_revive_goes_on_with_what_was_finished(cli: Cli) -> None:
    run = cli.trigger("pack", [1, -2])
    cli.on("revive", run.id).refused(1, "running", "halted or failed")
    drain(cli.app)
    run.context["seen"] = 1
    told = cli.on("revive", run.id, "--context", "--json").json
    assert told["revived_from"] == run.id
    assert cli.app.run(told["run"]).context["seen"] == 1
    cli.on("revive", run.id).refused(1, told["run"])
    drain(cli.app)
    assert f"{told['run']} goes on as" in cli.on("revive", told["run"]).text


def test_revive_takes_other_arguments_if_it_knows_the_pipeline(cli: Cli) -> None:
    run = cli.trigger("limited", 1, -2)
    drain(cli.app)
    cli.on("revive", run.id, "5", "6").refused(2, "knows no pipeline")
    app = ("--app", f"{cli.module}:app")
    cli("revive", run.id, "5", "second=6", *app).refused(2, "by position")
    cli("revive", run.id, "5", "--step", "two", *app).refused(2, "--step")
    new = cli("revive", run.id, "5", "6", "--json", *app).json["run"]
    drain(cli.app)
    assert cli.app.run(new).result(0) == [10, 60], "the first was finished"


def test_fork_does_a_step_again_and_keeps_what_came_before(cli: Cli) -> None:
    run = cli.trigger("limited", 1, 2)
    cli.on("fork", run.id, "one").refused(1, "running", "has ended")
    drain(cli.app)
    cli.on("fork", run.id, "three").refused(1, "its steps are one, two")
    told = cli.on("fork", run.id, "one", "--by", "ann", "--why", "to compare", "--json").json
    assert told == {"run": told["run"], "forked_from": run.id, "step": "one"}
    assert "is forked at two as" in cli.on("fork", run.id, "two", "--no-context").text
    drain(cli.app)
    new = cli.app.run(told["run"])
    assert new.result(0) == run.result(0)
    assert [(act.act, act.by, act.why) for act in cli.app.audit(run)][-1] == ("fork", "ann", "to compare")
    assert f"forked from {run.id}" in cli.on("show", new.id).text
    assert "revived from" not in cli.on("show", new.id).text
    assert cli.on("show", new.id, "--json").json["forked_from"] == run.id
    assert {row["forked_from"] for row in cli.on("runs", "--json").json} == {None, run.id}


def test_retry_does_one_step_again(cli: Cli) -> None:
    run = cli.trigger("limited", -1, -2)
    drain(cli.app)
    cli.on("retry", run.id).refused(2, "is a run", "penstock revive")
    failed = next(step for step in run.steps() if step.key == "one")
    cli.on("retry", failed.id).refused(2, "is a step of run", "--step one")
    cli.on("retry", failed.id, "--step", "one").refused(2, "not a run")
    cli.on("retry", run.id, "--step", "three").refused(1, "failed are one, two")
    cli.on("retry", run.id, "three").refused(1, "failed are one, two")
    (new,) = cli.on("retry", run.id, "--step", "one", "--json").json.values()
    drain(cli.app)
    assert {step.key: len(step.attempts()) for step in cli.app.run(new).steps()} == {"one": 2, "two": 1}


def test_retry_takes_a_step_whose_key_could_be_an_id(cli: Cli) -> None:
    run = cli.trigger("hexadecimal", -1)
    drain(cli.app)
    cli.on("retry", run.id, "dead").refused(1, "failed are bad")
    cli.on("retry", run.id, run.id).refused(2, "is a run", "penstock revive")
    (new,) = cli.on("retry", run.id, "bad", "--json").json.values()
    assert cli.app.run(new).revived_from == run


def test_signal_ends_a_wait(cli: Cli) -> None:
    run = cli.trigger("approve", 1)
    cli.on("signal", run.id, "aprove").refused(2, "it waits for approve", "Did you mean 'approve'?")
    assert "has the signal approve" in cli.on("signal", run.id[:30], "approve", '{"by": "ann"}').text
    again = cli.on("signal", run.id, "approve", "no")
    assert (again.code, "that one stands" in again.text) == (1, True)
    drain(cli.app)
    assert run.result(0) == [10, {"by": "ann"}]
    other = cli.trigger("pack", [1])
    cli.on("signal", other.id, "approve").refused(2, "nor for any other")
    ended = cli.trigger("approve", -1)
    drain(cli.app)
    cli.on("signal", ended.id, "approve").refused(1, "has ended")


def test_signal_takes_the_definition_of_the_app_where_the_row_is_lost(cli: Cli) -> None:
    run = cli.trigger("approve", 1)
    cli.app.database.in_transaction(lambda tx: tx.run("DELETE FROM {definitions}"))
    app = ("--app", f"{cli.module}:app")
    cli("signal", run.id, "aprove", *app).refused(2, "it waits for approve", "Did you mean 'approve'?")
    assert "has the signal approve" in cli("signal", run.id, "approve", "yes", *app).text
    drain(cli.app)
    assert run.result(0) == [10, "yes"]


def test_then_starts_a_pipeline_behind_a_run(cli: Cli) -> None:
    run = cli.trigger("pack", [1])
    following = cli("then", run.id[:30], f"{cli.module}:pack", "[2]", "note=later", "--json").json
    assert following["follows"] == run.id
    assert cli.app.run(following["run"]).status == "pending"
    text = cli("then", following["run"], f"{cli.module}:box", "4").text
    assert f"follows {following['run']}" in text
    drain(cli.app)
    assert cli.app.run(following["run"]).result(0) == "20 later"
    assert cli.app.run(text.split()[0]).result(0) == 40


def test_then_says_that_a_pipeline_behind_a_failed_run_is_skipped(cli: Cli) -> None:
    run = cli.trigger("pack", [-1])
    drain(cli.app)
    answer = cli("then", run.id, f"{cli.module}:pack", "[2]")
    assert f"follows {run.id}, which is halted, and is skipped" in answer.text


def test_then_refuses_what_makes_no_sense(cli: Cli) -> None:
    run = cli.trigger("pack", [1])
    cli("then", NOBODY, f"{cli.module}:pack", "[2]").refused(2, "no run")
    cli("then", run.id, f"{cli.module}:pack").refused(2, "items")
    cli("then", run.id, f"{cli.module}:number").refused(2, "neither a pipeline nor a task")
    assert cli.app.runs() == [run]


def test_every_command_explains_itself(cli: Cli) -> None:
    commands: list[Callable[..., Answer]] = []
    for command in (
        "run",
        "runs",
        "show",
        "cancel",
        "pause",
        "resume",
        "revive",
        "fork",
        "retry",
        "signal",
        "then",
    ):
        commands.append(cli)
        answer = cli(command, "--help")
        assert answer.code == 0
        assert "--json" in answer.text, command


def test_run_from_a_file_starts_a_run_for_each_line(cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "calls.jsonl"
    source.write_text('[[1, 2]]\n\n{"items": [3], "note": "by hand"}\n')
    answer = cli.run("pack", "--from", str(source))
    assert (answer.code, answer.text.splitlines()[-1]) == (0, "triggered 2 runs")
    drain(cli.app)
    assert sorted([run.result(0) for run in cli.app.runs()]) == ["30 by hand", "30 shipped"]
    cli.run("pack", "[1]", "--from", str(source)).refused(2, "--from")


def test_dead_letters_that_are_steps_say_how_they_are_done_again(cli: Cli) -> None:
    cli.trigger("pack", [-1])
    drain(cli.app)
    told = cli.on("dead-letters", "retry", "--all")
    assert told.code == 1
    assert "retried 0 of 1" in told.text
    assert "penstock revive RUN" in told.text
