"""integrations: the suite can be collected where no extra is installed: each module that needs one skips itself."""

import subprocess
import sys
from pathlib import Path

from tests.integrations.test_context import EXTRAS
from tests.workers import CHECKOUT

PROGRAM = """
import importlib, sys

import pytest


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
for module in sys.stdin.read().split():
    try:
        importlib.import_module(module)
    except pytest.skip.Exception:
        pass
    except BaseException as error:
        print(f"{module}: {type(error).__name__}: {error}")
    # What an import that failed has left behind must not help the next one.
    for name in list(sys.modules):
        if name.startswith(PARTS):
            del sys.modules[name]
"""
PARTS = ("penstock.assistant", "penstock.dashboard", "penstock.django", "penstock.integrations")


def test_every_test_module_can_be_imported() -> None:
    files = [path for path in Path(CHECKOUT, "tests").rglob("*.py") if path.name != "__main__.py"]
    wanted = [path for path in files if path.name == "conftest.py" or path.name.startswith("test_")]
    assert len(wanted) > 300
    modules = [".".join(path.relative_to(CHECKOUT).with_suffix("").parts) for path in sorted(wanted)]
    program = f"EXTRAS, PARTS = {EXTRAS!r}, {PARTS!r}\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="\n".join(modules),
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout, done.stdout
