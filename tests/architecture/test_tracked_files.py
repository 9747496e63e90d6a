"""Nothing in the repository says on which machine, or from which package host, it was made."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

# In pieces, or this file would be the first to be found.
HOSTS = ["pypi" + r"\.org", "python" + r"hosted\.org", "npm" + r"js\.(org|com)", "deb" + r"\.debian\.org"]
PLACES = ["/ro" + r"ot/", "/wo" + r"rk/", "/ho" + r"me/\w+/", "/Us" + r"ers/\w+/"]
TRACE = re.compile("|".join([*HOSTS, *(rf"(?<![\w.])({place})" for place in PLACES)]))


def test_no_file_names_a_machine_or_a_package_host() -> None:
    found = [
        f"{file}:{number}: {line.strip()[:80]}"
        for file in _files()
        for number, line in enumerate(_lines(ROOT / file), 1)
        if TRACE.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("trace", ["see /ro" + "ot/x", "https://pypi" + ".org/simple", '"/wo' + 'rk/main"'])
def test_a_trace_would_be_found(trace: str) -> None:
    assert TRACE.search(trace)


def _files() -> list[str]:
    """What git would commit, and what it has."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [file for file in listed if (ROOT / file).is_file()]


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except UnicodeDecodeError:
        return []
