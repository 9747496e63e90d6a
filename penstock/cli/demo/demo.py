"""`penstock demo`: a pipeline on a SQLite file, two workers killed in the middle, and the books in order at the end.

The demo has scenes. Each scene does something, waits until the database shows it, and prints what was seen; the last
one audits the result. The exit code is 0 only if everything was as promised.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.demo.display import Display
from penstock.cli.exit_codes import BAD, err
from penstock.operate.processes import ProcessRow, list_processes
from penstock.values.lazy_import import Lazy

if TYPE_CHECKING:
    from penstock.dashboard import local_server
else:
    local_server = Lazy("penstock.dashboard.local_server")

ORDERS = 100
SECONDS = 0.25
PATIENCE = 30.0
OPENED_WITHIN = 30.0
"""Seconds that the demo waits for a browser to open the dashboard."""
REPLACED_WITHIN = 2.0
MODULE = "penstock.cli.demo.app"


def demo(
    orders: Annotated[int, typer.Option(min=20, max=1000, help="how many orders to charge")] = ORDERS,
    keep: Annotated[
        bool, typer.Option("--keep", help="keep the folder with the database and the log")
    ] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="watch it in a browser; Ctrl-C ends the dashboard")
    ] = False,
) -> None:
    """Kill workers in the middle of a pipeline. With kill -9, to see that nothing is lost or done twice."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    os.environ["PENSTOCK_DATABASE_URL"] = f"sqlite:///{folder / 'demo.db'}"
    play = Demo(import_module(MODULE), folder, orders)
    if dashboard:
        watch_in_browser(play)
    else:
        with play.stage:
            play.perform()
    if play.failures:
        for failure in play.failures:
            err.print(f"not as promised: {failure}", markup=False, style="red")
        err.print(f"see {folder}", markup=False)
        raise typer.Exit(BAD)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)


def watch_in_browser(play: Demo) -> None:
    """Run the demo when the dashboard is open, or after a while, and leave the dashboard open until Ctrl-C."""
    server = local_server.LocalServer(play.world.app, 0)
    server.start()
    err.print(f"watch it at  {server.link()}", markup=False, soft_wrap=True)
    begin = time.monotonic() + OPENED_WITHIN
    with suppress(KeyboardInterrupt):
        while not server.was_opened and time.monotonic() < begin:
            time.sleep(0.2)
        with play.stage:
            play.perform()
        err.print("the dashboard stays open; Ctrl-C ends it", markup=False)
        while sys.stdin.isatty():
            time.sleep(1)
    server.stop()
    play.world.app.close()


@dataclass(slots=True)
class Demo:
    """Runs the demo: trigger, kill the workers, watch the run finish, check what was promised."""

    world: Any
    folder: Path
    orders: int
    stage: Display = field(default_factory=Display)
    failures: list[str] = field(default_factory=list)
    run: Any = None
    worker: subprocess.Popen[bytes] | None = None
    deadline: float = 0.0

    def perform(self) -> None:
        self.deadline = time.monotonic() + PATIENCE
        try:
            self.open_the_books()
            self.start_workers()
            self.wait_until(lambda: self.done() >= self.orders // 4, "a quarter of the orders")
            self.kill_one_worker()
            self.wait_until(lambda: self.done() >= self.orders // 2, "half of the orders")
            self.kill_one_worker()
            self.wait_until(lambda: self.run.status.terminal, "the end of the run")
            self.stop_workers()
            self.audit()
        except TimeoutError as error:
            self.failures.append(str(error))
        finally:
            if self.worker is not None and self.worker.poll() is None:
                os.killpg(self.worker.pid, signal.SIGKILL)
            self.world.app.close()

    # scenes

    def open_the_books(self) -> None:
        app = self.world.app
        app.prepare()
        self.world.tables.create_all(app.database.engine)
        self.run = self.world.fulfil.trigger(self.orders, SECONDS)
        self.stage.say(f"triggered a pipeline over {self.orders} orders, on a SQLite file")

    def start_workers(self) -> None:
        command = [sys.executable, "-m", "penstock", "worker", f"{MODULE}:app", "--processes", "2"]
        with (self.folder / "worker.log").open("wb") as log:
            self.worker = subprocess.Popen(
                [*command, "--concurrency", "4"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.wait_until(lambda: len(self.workers()) == 2, "two workers")
        pids = " and ".join(str(worker.pid) for worker in self.workers())
        self.stage.say(f"started a supervisor with two worker processes, pids {pids}")

    def kill_one_worker(self) -> None:
        before = self.wait_until(
            lambda: [worker for worker in self.workers() if worker.holding], "a busy worker"
        )
        victim = max(before, key=lambda worker: worker.holding)
        os.kill(victim.pid, signal.SIGKILL)
        killed = time.monotonic()
        self.stage.say(f"kill -9 {victim.pid}, in the middle of {victim.holding} steps", "red")
        known = {worker.id for worker in before}
        fresh = self.wait_until(
            lambda: [w for w in self.workers() if w.id not in known | {victim.id}], "a successor"
        )
        took = time.monotonic() - killed
        self.stage.say(f"worker {fresh[0].pid} took its place {took:.2f} s later", "green")
        self.promise(took < REPLACED_WITHIN, f"a dead worker was replaced only after {took:.1f} s")

    def stop_workers(self) -> None:
        assert self.worker is not None
        self.worker.send_signal(signal.SIGTERM)
        code = self.worker.wait(10)
        self.promise(code == 0, f"the supervisor ended with code {code}")
        self.promise(not self.processes(), "process rows were left behind")

    def audit(self) -> None:
        with self.world.app.database.engine.connect() as connection:
            charged = [row.order_id for row in connection.execute(self.world.ledger.select())]
        steps = self.run.steps()
        attempts = [attempt for step in steps for attempt in step.attempts()]
        crashed = [attempt for attempt in attempts if attempt.outcome == "crashed"]
        self.promise(
            sorted(charged) == list(range(self.orders)), f"{len(charged)} charges of {self.orders} orders"
        )
        self.promise(self.run.status == "succeeded", f"the run ended {self.run.status}")
        self.promise(
            sum(step.key == "close_books" for step in steps) == 1, "the books were closed more than once"
        )
        self.promise(bool(crashed), "no attempt was interrupted: there was nothing to recover from")
        ended = [step for step in steps if step.status == "succeeded"]
        self.promise(
            len(attempts) == len(ended) + len(crashed), "there were attempts that no record accounts for"
        )
        if not self.failures:
            self.stage.say(
                f"{len(attempts)} attempts, {len(crashed)} of them cut off by the kills and done again"
            )
            self.stage.say(
                f"{self.orders} orders, {len(charged)} charges: nothing lost, nothing twice", "bold green"
            )
            result = ", ".join(f"{count} {way}" for way, count in self.run.result(1).items())
            self.stage.say(f"the result of the fan-in: {result}", "bold green")

    # watching

    def wait_until(self, look: Callable[[], Any], what: str) -> Any:
        while True:
            seen = look()
            self.stage.show(self.run.graph(), self.processes())
            if seen:
                return seen
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"timed out waiting for {what}")
            time.sleep(0.05)

    def done(self) -> int:
        """How many orders are charged."""
        return sum(node.counts.get("succeeded", 0) for node in self.run.graph().nodes if node.key == "charge")

    def processes(self) -> list[ProcessRow]:
        return list(self.world.app.database.read(list_processes))

    def workers(self) -> list[ProcessRow]:
        return [process for process in self.processes() if process.role != "supervisor"]

    def promise(self, kept: bool, otherwise: str) -> None:
        if not kept:
            self.failures.append(otherwise)
