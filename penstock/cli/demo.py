"""`penstock demo`: real workers on a SQLite file, two of them killed in the middle, and the books in order at the
end.

The demo is a play in scenes. Each scene does something, waits until the database shows it, and says what was seen;
the last one audits the result. The exit code is 0 only if everything was as promised.
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
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.demo_stage import Stage
from penstock.cli.frame import BAD, err
from penstock.operate.overview import overview
from penstock.operate.processes import ProcessRow, list_processes

ORDERS = 160
SECONDS = 0.25
PATIENCE = 30.0
REPLACED_WITHIN = 2.0
MODULE = "penstock.cli.demo_app"


def demo(
    orders: Annotated[int, typer.Option(min=20, max=1000, help="how many orders to charge")] = ORDERS,
    keep: Annotated[
        bool, typer.Option("--keep", help="keep the folder with the database and the log")
    ] = False,
) -> None:
    """Kill workers with kill -9 while they charge orders, and see that nothing is lost or done twice."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    os.environ["PENSTOCK_DATABASE_URL"] = f"sqlite:///{folder / 'demo.db'}"
    play = Play(import_module(MODULE), folder, orders)
    with play.stage:
        play.perform()
    if play.failures:
        for failure in play.failures:
            err.print(f"not as promised: {failure}", markup=False, style="red")
        err.print(f"see {folder}", markup=False)
        raise typer.Exit(BAD)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class Play:
    """What happens, in order."""

    world: Any
    folder: Path
    orders: int
    stage: Stage = field(default_factory=Stage)
    failures: list[str] = field(default_factory=list)
    jobs: list[Any] = field(default_factory=list)
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
            self.wait_until(lambda: self.done() == self.orders, "all orders")
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
        self.jobs = self.world.charge.enqueue_many([(number, SECONDS) for number in range(self.orders)])
        self.stage.say(f"enqueued {self.orders} orders in one statement, on a SQLite file")

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
        self.stage.say(f"kill -9 {victim.pid}, in the middle of {victim.holding} orders", "red")
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
        attempts = [attempt for job in self.jobs for attempt in job.attempts()]
        crashed = [attempt for attempt in attempts if attempt.outcome == "crashed"]
        self.promise(
            sorted(charged) == list(range(self.orders)), f"{len(charged)} charges of {self.orders} orders"
        )
        self.promise(all(job.status == "succeeded" for job in self.jobs), "not every job has succeeded")
        self.promise(bool(crashed), "no attempt was interrupted: there was nothing to recover from")
        self.promise(
            len(attempts) == self.orders + len(crashed), "there were attempts nobody can account for"
        )
        if not self.failures:
            self.stage.say(
                f"{len(attempts)} attempts, {len(crashed)} of them cut off by the kills and done again"
            )
            self.stage.say(
                f"{self.orders} orders, {len(charged)} charges: nothing lost, nothing twice", "bold green"
            )

    # watching

    def wait_until(self, look: Callable[[], Any], what: str) -> Any:
        while True:
            seen = look()
            self.stage.show(self.counts(), self.orders, self.processes())
            if seen:
                return seen
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"waited in vain for {what}")
            time.sleep(0.05)

    def counts(self) -> dict[str, int]:
        database = self.world.app.database
        return dict(database.read(overview, database.settings.reap_after).recent)

    def done(self) -> int:
        return self.counts().get("succeeded", 0)

    def processes(self) -> list[ProcessRow]:
        return list(self.world.app.database.read(list_processes))

    def workers(self) -> list[ProcessRow]:
        return [process for process in self.processes() if process.role != "supervisor"]

    def promise(self, kept: bool, otherwise: str) -> None:
        if not kept:
            self.failures.append(otherwise)
