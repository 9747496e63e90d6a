"""The application of `scenes`, as `penstock worker` runs it."""

from collections.abc import Mapping

from tests.workers import WorkerProcess, Workers

MODULE = """
import os

from tests.process.scenes import make_app

app = make_app(os.environ["PENSTOCK_DATABASE_URL"], os.environ["PENSTOCK_TEST_DIARY"])
"""
LIVELY = {"PENSTOCK_HEARTBEAT_INTERVAL": "0.2", "PENSTOCK_REAP_AFTER": "2"}


def start_worker(workers: Workers, *options: str, env: Mapping[str, str] | None = None) -> WorkerProcess:
    """`penstock worker` on the app of `scenes`; by default one process without a supervisor."""
    diary = {"PENSTOCK_TEST_DIARY": str(workers.folder / "diary")}
    options = options or ("--processes", "0")
    return workers(*options, module=MODULE, env=LIVELY | diary | dict(env or {}))


def lines_with(worker: WorkerProcess, words: str) -> list[str]:
    return [line for line in worker.log.splitlines() if words in line]
