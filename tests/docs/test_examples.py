"""The examples run as their readers would run them, and say what they promise to say."""

import os
from pathlib import Path

import pytest

from tests.forkserver import Program, finished, said_in

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
    arguments = [str(ROOT / "examples" / example)]
    done = finished(Program(arguments, tmp_path, environment | {"PYTHONPATH": str(ROOT)}, *said_in(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == EXPECTED[example]
