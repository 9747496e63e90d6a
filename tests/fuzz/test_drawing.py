"""The cases of the fuzz are fresh ones at every run, in CI too."""

import os
import subprocess
import sys

SAY = "import tests.conftest, hypothesis; print(hypothesis.settings().derandomize)"


def test_cases_are_fresh_in_ci_too() -> None:
    environment = {**os.environ, "CI": "true"}
    said = subprocess.run(
        [sys.executable, "-c", SAY], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "False"
