"""The examples run as their readers would run them, and say what they promise to say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EXPECTED = {
    "media/media.py": [
        "succeeded  published 3 sizes and 2 extras",
        "succeeded  published 3 sizes and 1 extras",
        "failed     [<Reason.RETRIES_EXHAUSTED: 'retries_exhausted'>]",
        "halted     [<Reason.RETRIES_EXHAUSTED: 'retries_exhausted'>]",
        "5 callbacks",
    ],
    "enrich/enrich.py": [
        "3 regions, worth [90, 50, 90]",
        "3 regions, worth [90, 50, 90]",
        "0 regions, worth []",
    ],
    "payments/payments.py": [
        "the same invoice twice is one run",
        "with the books closed it is halted",
        "revived it is succeeded and booked",
        "a small one is succeeded",
        "2 charges for two payments",
        "2 bookings",
    ],
}


@pytest.mark.parametrize("example", EXPECTED)
def test_example(example: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / example],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == EXPECTED[example]
