"""django/task_backend: the contract of `django.tasks` and the example project on Django 6, also where the tests run
on Django 5.2.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.errors import Unavailable
from tests.servers.newer_django import python_with_django_6

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = ["-m", "django", "test", "tests.django.contract", "--settings", "tests.django.contract.settings"]
EXAMPLE = [str(ROOT / "examples" / "django_shop" / "manage.py"), "test", "shop"]
VERSION = "import django, sys; print(django.VERSION[0], django.__version__, sys.version_info[:2])"


@pytest.fixture(scope="module")
def python() -> str:
    try:
        return str(python_with_django_6())
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.one_database
@pytest.mark.timeout(300)
def test_the_contract_and_the_example_on_django_6(python: str, tmp_path: Path) -> None:
    version = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=True).stdout
    assert version.startswith("6 "), version
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "PYTHON"))}
    begun = []
    for name, arguments in (("contract", CONTRACT), ("example", EXAMPLE)):
        env = ours | {"PYTHONPATH": str(ROOT), "DATABASE_URL": f"sqlite:///{tmp_path}/{name}.db"}
        begun.append(
            subprocess.Popen(
                [python, *arguments],
                cwd=tmp_path,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    said = [process.communicate(timeout=200)[0] for process in begun]
    assert [process.returncode for process in begun] == [0, 0], "\n".join(said)
    assert "Ran 37 tests" in said[0], said[0]
    assert "Ran 9 tests" in said[1], said[1]
    assert "skipped" not in "".join(said)
    assert sys.executable != python
