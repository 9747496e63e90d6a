"""Every test file says in its first line what it is about, and the tests of a module can be found by its name."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import tests_of as finder

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "tests").rglob("test_*.py"))
FEWEST_WORDS = 4


def test_every_file_begins_with_a_sentence() -> None:
    silent = []
    for path in FILES:
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        if len(first.split()) < FEWEST_WORDS:
            silent.append(f"{path.relative_to(ROOT)}: {first}")
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        ("penstock/queue/settle.py", "tests/conformance/operate/test_family.py"),
        ("penstock.cli.table", "tests/pure/test_table.py"),
        ("penstock/testing/drain_rows.py", "tests/conformance/tasks/test_first_steps.py"),
    ],
)
def test_the_tests_of_a_module_are_found(module: str, wanted: str) -> None:
    found = [str(path.relative_to(ROOT)) for path in finder.tests_of(module)]
    assert wanted in found
    assert len(found) < len(FILES) / 2


def test_a_module_that_is_not_there_is_refused() -> None:
    asked = [sys.executable, "scripts/tests_of.py", "penstock/nothing.py"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "which module?" in done.stderr
