"""values/function_identity: the name of a task that a program declares is the one by which a worker that imports it
knows the task.
"""

import runpy
from pathlib import Path

import pytest

LIBRARY = """
import functools

def traced(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)
    return call
"""
PROGRAM = """
from penstock.values.function_identity import qualified_name
from tracing import traced

def plain(): ...

@traced
def decorated(): ...

class Orders:
    @staticmethod
    def static(): ...

names = [qualified_name(each) for each in (plain, decorated, Orders.static, Orders.__dict__["static"])]
"""


def test_names_in_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tracing.py").write_text(LIBRARY)
    (tmp_path / "shop.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    names = runpy.run_path(str(tmp_path / "shop.py"), run_name="__main__")["names"]
    assert names == ["shop.plain", "shop.decorated", "shop.Orders.static", "shop.Orders.static"]
