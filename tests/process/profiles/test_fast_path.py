"""database/dialect: the setting `fast_path`: off, PostgreSQL settles the general way, and a part of the conformance
suite passes.

The whole of it: `PENSTOCK_FAST_PATH=false python -m pytest --database postgres tests/conformance`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from penstock import Penstock
from penstock.database.dialect import ALL_PARTS, GENERAL_WAY
from penstock.testing import drain
from tests.workers import CHECKOUT

pytestmark = [pytest.mark.process, pytest.mark.slow]

CHOSEN = (
    "claim/test_claims.py",
    "settle/test_retries.py",
    "pipelines/runs/test_running.py",
    "pipelines/cancel/test_steering.py",
)


def test_a_part_of_the_conformance_suite_passes_without_it(postgres_url: str) -> None:
    """On the server of `postgres_url`: one more would take longer to start than these tests."""
    files = [str(CHECKOUT / "tests/conformance" / name) for name in CHOSEN]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--database",
        "postgres",
        *files,
    ]
    environment = os.environ | {"PENSTOCK_FAST_PATH": "false", "TEST_POSTGRES_URL": postgres_url}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    assert re.search(r"\b\d{2,} passed", done.stdout)


@pytest.mark.parametrize("fast", [True, False])
def test_it_is_one_switch(app_on: Callable[..., Penstock], postgres_url: str, fast: bool) -> None:
    app = app_on(postgres_url, fast_path=fast)

    @app.task
    def same(number: int) -> int:
        return number

    made = app.flow("made").start(same).chain(same)
    runs = [made.trigger(number) for number in (1, 2)]
    drain(app)
    assert [run.result(0) for run in runs] == [1, 2]
    assert bool(app.engine.engine_state.cached_steps) is fast, "plans are remembered by the fast path alone"
    assert app.database.dialect.fast_path == (ALL_PARTS if fast else GENERAL_WAY)
