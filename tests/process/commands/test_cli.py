"""cli/main: the command line as a user meets it: real processes, wrong input, and the demo."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Penstock
from tests.forkserver import Program, finished, said_in
from tests.workers import CHECKOUT

pytestmark = pytest.mark.process

SHOP = """
from penstock import Penstock
app = Penstock("sqlite:///shop.db")
other = 3

@app.task
def pay(order: int) -> int:
    return order
"""

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """`cli("status", SOME_VARIABLE="x")` in a folder with shop.py in it; stdout and stderr apart."""
    (tmp_path / "shop.py").write_text(SHOP)

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run_program(tmp_path, "-m", "penstock", *arguments, **variables)

    return run


def run_program(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment = {**clean, "PYTHONPATH": str(CHECKOUT), **variables}
    return finished(Program(arguments, folder, environment, *said_in(folder)))


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """One line on stderr that says what to do, the right code, nothing on stdout, no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("penstock: ")
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("shopp:app", ("no module 'shopp'", "did you mean shop?")),
        ("shop:ap", ("no 'ap'", "did you mean 'app'?")),
        ("shop:nothing", ("no 'nothing'", "Apps in it: shop:app")),
        ("os:get_exec_path", ("not a Penstock app but of type function", "app = get_exec_path()")),
        ("shop:other", ("not a Penstock app but of type int", "shop:app")),
        ("shop.py:app", ("module:attribute", "shop:app")),
        ("./shop:app", ("module:attribute",)),
        (":app", ("module:attribute",)),
        ("os.path.nope:app", ("no module 'os.path.nope'",)),
        ("shop.app", ("no module 'shop.app'", "did you mean shop:app?")),
    ],
)
def test_a_wrong_target_gets_one_line_that_says_what_to_do(
    cli: Cli, target: str, words: tuple[str, ...]
) -> None:
    refused(cli("check", target), 2, *words)


def test_a_worker_is_refused_the_same_way(cli: Cli, tmp_path: Path) -> None:
    refused(cli("worker", "shop:ap"), 2, "did you mean 'app'?")
    refused(cli("worker"), 2, "$PENSTOCK_APP")
    refused(cli("worker", PENSTOCK_APP="shop:ap"), 2, "PENSTOCK_APP=shop:ap: ", "did you mean 'app'?")
    refused(
        cli("status", PENSTOCK_APP="nosuch:app"), 2, "PENSTOCK_APP=nosuch:app: there is no module 'nosuch'"
    )
    assert not (tmp_path / "shop.db").exists()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "import sys; sys.exit()",
            ("importing broken failed", "ends the program", "broken.py:1", "__main__"),
        ),
        (
            "from penstock import Penstock; Penstock(reap_aftr=3)",
            ("Did you mean 'reap_after'?", "broken.py:1"),
        ),
        ("import nothing_like_it", ("importing broken failed", "nothing_like_it", "broken.py:1")),
        ("1/0", ("importing broken failed", "ZeroDivisionError", "broken.py:1")),
        ("def (", ("importing broken failed", "SyntaxError", "broken.py:1")),
        ("from penstock import Penstock\napp = Penstock(concurency=3)", ("concurency", "'concurrency'")),
        ("from penstock import Penstock\napp = Penstock('foo://x')", ("sqlite://", "postgresql://")),
        ("from penstock import Penstock\napp = Penstock(heartbeat_interval='soon')", ("heartbeat_interval",)),
    ],
)
def test_a_module_that_cannot_be_imported_says_why(
    cli: Cli, tmp_path: Path, source: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "broken.py").write_text(source)
    refused(cli("check", "broken:app"), 2, *words)
    assert "Traceback" in cli("--debug", "check", "broken:app").stderr


def test_a_wrong_environment_variable_is_refused_with_the_nearest(cli: Cli) -> None:
    refused(cli("check", "shop:app", PENSTOCK_CONCURENCY="3"), 2, "PENSTOCK_CONCURRENCY")


@pytest.mark.parametrize("command", ["status", "jobs", "processes", "doctor", "dead-letters"])
def test_looking_creates_no_database(cli: Cli, tmp_path: Path, command: str) -> None:
    refused(cli(command), 3, f"no database file {tmp_path}/penstock.db", "--database")
    assert not (tmp_path / "penstock.db").exists()


def test_an_unreachable_database_has_its_own_code(cli: Cli) -> None:
    away = cli("status", "--database", "postgresql://x@127.0.0.1:1/x")
    refused(away, 3, "127.0.0.1", "Connection refused. Is the server running")
    refused(cli("status", "--database", "mysql://x@127.0.0.1:1/x"), 3, "127.0.0.1")


def test_a_url_that_names_a_folder_says_so(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for command in ("status", "migrate"):
        done = cli(command, "--database", "sqlite:///data")
        refused(done, 3, f"{tmp_path}/data is a folder. Let the URL name a file in it")
    assert list((tmp_path / "data").iterdir()) == []


def test_a_schema_of_the_future_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert cli("migrate", "--app", "shop:app").returncode == 0
    change = "from shop import app; app.database.in_transaction(lambda tx: tx.run('{}'))"
    statement = "INSERT INTO penstock_schema_versions VALUES (9999, 0)"
    assert run_program(tmp_path, "-c", change.format(statement)).returncode == 0
    for arguments in (
        ["status", "--app", "shop:app"],
        ["worker", "shop:app", "--processes", "0"],
        ["worker", "shop:app"],
    ):
        refused(cli(*arguments), 2, "schema version 9999", "Upgrade the penstock package")


def test_a_worker_needs_one_process_for_a_database_in_memory(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "memory.py").write_text("from penstock import Penstock\napp = Penstock('sqlite://')")
    refused(cli("worker", "memory:app"), 2, "--processes 0")


@pytest.mark.parametrize(
    "options",
    [
        ["--processes", "-1"],
        ["--concurrency", "0"],
        ["--role", "boss"],
        ["--queues", "a:b"],
        ["--log-level", "x"],
    ],
)
def test_wrong_options_of_a_worker_are_refused(cli: Cli, options: list[str]) -> None:
    done = cli("worker", "shop:app", *options)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_check_finds_signatures_that_cannot_work(cli: Cli, tmp_path: Path) -> None:
    assert cli("check", "shop:app").stdout == "1 task, 0 pipelines, no problems\n"
    (tmp_path / "bad.py").write_text(SHOP + "\n@app.task\ndef lost(what: 'Nowhere') -> None: ...\n")
    done = cli("check", "bad:app")
    assert done.returncode == 1
    assert "bad.lost" in done.stdout
    assert "Nowhere" in done.stdout


def test_check_finds_definitions_that_cannot_work(cli: Cli, tmp_path: Path) -> None:
    wide = "@app.pipeline(max_fanout=2)\ndef wide(x: int):\n    a = pay(x)\n    return [pay(a), pay(a), pay(a)]\n"
    odd = "@app.pipeline\ndef odd(x: int):\n    return pay(nothing)\n"
    lost = "@app.pipeline\ndef lost(x: 'Nowhere', y: object = app):\n    return pay(x)\n"
    kept = "@app.pipeline\ndef kept(x: int, y: object = app):\n    return pay(x)\n"
    (tmp_path / "flows.py").write_text(f"{SHOP}\n{wide}\n{odd}\n{lost}\n{kept}")
    done = cli("check", "flows:app")
    assert done.returncode == 1
    assert "'pay' is divided into 3; max_fanout is 2" in done.stdout
    assert "NameError: name 'nothing'" in done.stdout
    assert "flows.lost: the annotation of parameter 'x'" in done.stdout
    assert "flows.kept: argument 'y'" in done.stdout


def test_the_app_may_come_from_the_environment(cli: Cli) -> None:
    assert cli("migrate", PENSTOCK_APP="shop:app").returncode == 0
    assert cli("status", PENSTOCK_APP="shop:app").returncode == 0
    assert cli("check", PENSTOCK_APP="shop:app").returncode == 0


def test_jobs_can_be_enqueued_one_or_many(cli: Cli, tmp_path: Path) -> None:
    id = cli("enqueue", "shop:pay", "order=7", "--queue", "mail").stdout.strip()
    assert id in cli("jobs", "--app", "shop:app", "--queue", "mail").stdout
    (tmp_path / "calls").write_text("".join(f"[{n}]\n" for n in range(12_000)) + '{"order": 3}\n\n4\n')
    assert cli("enqueue", "shop:pay", "--from", "calls").stdout == "enqueued 12,002 jobs\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["shop:pay", "--from", "calls"], ("line 2 of calls",)),
        (["shop:pay", "--from", "nowhere"], ("cannot read nowhere",)),
        (["shop:pay", "x"], ("order",)),
        (["shop:pay"], ("order",)),
        (["shop:other", "1"], ("not a task but of type int", "Tasks in it: pay")),
        (["shop:pai", "1"], ("did you mean 'pay'?",)),
        (["plain:pays", "1"], ("not a task but of type function", "Did you mean 'plain:pay'?")),
        (["calls:pay", "1"], ("not a task but of type function", "There are no tasks in calls")),
        (["shop", "1"], ("module:task",)),
        (["shop:payy", "1"], ("did you mean 'pay'?",)),
    ],
)
def test_what_cannot_be_enqueued_is_refused_and_leaves_nothing_behind(
    cli: Cli, tmp_path: Path, arguments: list[str], words: tuple[str, ...]
) -> None:
    (tmp_path / "calls").write_text("[1]\nnonsense\n")
    (tmp_path / "calls.py").write_text("def pay(): ...")
    (tmp_path / "plain.py").write_text("from shop import pay\ndef pays(): ...")
    refused(cli("enqueue", *arguments), 2, *words)
    assert not (tmp_path / "shop.db").exists()


def test_any_text_is_shown_on_any_terminal(cli: Cli, tmp_path: Path) -> None:
    """Whatever its encoding lacks is escaped, and lines are cut where a word has no room."""
    app = Penstock(f"sqlite:///{tmp_path}/shop.db")

    @app.task(name="é🙂 \u2028")
    def pay(order: str) -> str:
        return order

    @app.pipeline(name="ünd")
    def und(order: str) -> object:
        return pay(order)

    job, run = pay.enqueue("é🙂" * 9), und.trigger("é🙂" * 9)
    app.close()
    for id in (job.id, run.id):
        show = ("show", id, "--database", "sqlite:///shop.db")
        for width in ("1", "10"):
            shown = cli(*show, COLUMNS=width)
            assert (shown.returncode, shown.stderr) == (0, "")
            assert id[:8] in shown.stdout
        # A process of its own: the encoding is chosen when Python starts.
        program = [sys.executable, "-m", "penstock", *show]
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONIOENCODING": "ascii"}
        told = subprocess.run(
            program, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=60
        )
        assert (told.returncode, told.stderr) == (0, b"")
        assert rb"\xe9\U0001f642" in told.stdout


def test_help_and_version(cli: Cli) -> None:
    assert cli("--version").stdout.startswith("penstock ")
    shown = cli("--help").stdout
    for command in ("worker", "status", "jobs", "dead-letters", "doctor", "prune", "migrate", "demo"):
        assert command in shown
    assert cli("nonsense").returncode == 2


INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("imported", ["pydantic_core", "typer"])
@pytest.mark.parametrize("start", ["module", "script"])
def test_ctrl_c_during_the_imports_ends_a_command_as_later(tmp_path: Path, start: str, imported: str) -> None:
    """With an interpreter of its own: it has imported nothing yet."""
    (tmp_path / f"{imported}.py").write_text(INTERRUPTED)
    module, _, name = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["scripts"][
        "penstock"
    ].partition(":")
    script = f"import sys; from {module} import {name}; sys.exit({name}())"
    command = [sys.executable, *(["-m", "penstock"] if start == "module" else ["-c", script]), "--version"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{CHECKOUT}"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_demo_keeps_its_promises(tmp_path: Path) -> None:
    """With an interpreter of its own, as users start it."""
    command = [sys.executable, "-m", "penstock", "demo"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("kill -9") == 2
    assert "nothing lost, nothing twice" in done.stdout


NAMING = """
import multiprocessing
from penstock import Penstock
app = Penstock("sqlite:///shop.db")

@app.task
def pay(order: int) -> int:
    return order

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=pay.enqueue, args=(2,))
    pay.enqueue(1)
    child.start()
    child.join()
"""


@pytest.mark.parametrize(("start", "module"), [(["store.py"], "store"), (["-m", "mall.store"], "mall.store")])
def test_what_a_program_enqueues_has_the_name_that_a_worker_knows(
    cli: Cli, tmp_path: Path, start: list[str], module: str
) -> None:
    file = tmp_path / f"{module.replace('.', '/')}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(NAMING)
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    subprocess.run([sys.executable, *start], cwd=tmp_path, env=environment, check=True)
    with Penstock(f"sqlite:///{tmp_path}/shop.db") as app:
        names = app.database.read(lambda tx: tx.rows("SELECT task FROM {jobs}"))
    assert names == [(f"{module}.pay",)] * 2
