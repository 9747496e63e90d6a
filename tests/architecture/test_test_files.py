"""Every test file says in its first line what it is about, and the tests of a module can be found by its name."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts import tests_of as finder
from tests.architecture.source import modules

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "tests").rglob("test_*.py"))
FEWEST_WORDS = 4
MOST_IN_A_FOLDER = 25
NO_ACTORS = re.compile(r"def (test_\w*(?:whoever|nobody|somebody)\w*)")


def test_every_file_begins_with_a_sentence() -> None:
    silent = []
    for path in FILES:
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        if len(first.split()) < FEWEST_WORDS:
            silent.append(f"{path.relative_to(ROOT)}: {first}")
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize("folder", ["pure", "conformance", "process", "django", "integrations"])
def test_the_first_line_names_the_modules(folder: str) -> None:
    """Of tests of the package itself; the others are about all of it, or about something beside it."""
    files = [path for path in FILES if path.is_relative_to(ROOT / "tests" / folder)]
    assert files
    assert [str(path.relative_to(ROOT)) for path in files if not finder.about(path)] == []


def test_a_first_line_without_modules_is_found(tmp_path: Path) -> None:
    path = tmp_path / "test_sample.py"
    path.write_text('"""queue/settle, queue/nothing: settles."""')
    assert finder.about(path) == {"penstock.queue.settle"}
    other = tmp_path / "test_other.py"
    other.write_text('"""Settles: what becomes of attempts."""')
    assert finder.about(other) == set()


def test_a_folder_can_be_looked_through() -> None:
    files = Counter(str(path.parent.relative_to(ROOT)) for path in FILES)
    assert not {folder: count for folder, count in files.items() if count > MOST_IN_A_FOLDER}


def test_the_names_of_tests_name_the_actor() -> None:
    """*The worker, the caller, the run*: see `tests/architecture/test_words.py`."""
    assert [name for path in FILES for name in NO_ACTORS.findall(path.read_text())] == []


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        ("penstock/queue/settle.py", "tests/conformance/operate/test_family.py"),
        ("penstock.cli.table", "tests/pure/test_table.py"),
        ("penstock/testing/drain_rows.py", "tests/conformance/enqueue/test_first_steps.py"),
    ],
)
def test_the_tests_of_a_module_are_found(module: str, wanted: str) -> None:
    found = [str(path.relative_to(ROOT)) for path in finder.tests_of(module)]
    assert wanted in found
    assert len(found) < len(FILES) / 2


def test_every_module_has_tests_that_are_found() -> None:
    """By first lines and by imports, where tests go through the public interface."""
    assert [module.name for module in modules() if not finder.tests_of(module.name)] == []


def test_a_module_that_is_not_there_is_refused() -> None:
    asked = [sys.executable, "scripts/tests_of.py", "penstock/nothing.py"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "which module?" in done.stderr
