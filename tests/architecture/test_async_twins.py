"""What touches the database exists for sync and for async callers, with the same arguments."""

import ast
from functools import cache

import pytest

from tests.architecture.source import Function, modules

TWINS = {
    "Penstock": {
        *("audit", "close", "dead_letters", "explain", "hint", "jobs", "migrate", "pause_queue", "queues"),
        *("resume", "resume_queue", "run", "runs", "schedule", "set_queues"),
    },
    "Task": {"enqueue", "enqueue_many"},
    "Job": {"attempts", "cancel", "delete", "refresh", "result", "retry", "then", "update"},
    "Pipeline": {"trigger", "trigger_many"},
    "Schedule": {"backfill", "delete", "next", "pause", "resume", "ticks", "trigger", "update"},
    "Schedules": {"create", "list"},
    "Run": {
        "cancel",
        "diff",
        "fork",
        "migrate",
        "pause",
        "rerun",
        "result",
        "resume",
        "retry_step",
        "revive",
        "signal",
        "steps",
        "then",
        "token",
    },
}


@cache
def classes() -> dict[str, ast.ClassDef]:
    """Not when the tests are collected: every pytest process does that, and it takes seconds to read the whole
    package."""
    return {node.name: node for module in modules() for node in module.classes}


@pytest.mark.parametrize("name", sorted(TWINS))
def test_what_the_contract_names_has_both(name: str) -> None:
    methods = _methods(classes()[name])
    expected = TWINS[name] | {f"{method}_async" for method in TWINS[name]}
    assert not expected - methods.keys()


def test_twins_take_the_same_arguments() -> None:
    pairs = 0
    for name, node in classes().items():
        methods = _methods(node)
        for method in [method for method in methods if method.endswith("_async") and method[0] != "_"]:
            twin = methods.get(method.removesuffix("_async"))
            assert twin is not None, f"{name}.{method} has no sync twin"
            assert isinstance(methods[method], ast.AsyncFunctionDef), f"{name}.{method} cannot be awaited"
            assert isinstance(twin, ast.FunctionDef), f"{name}.{twin.name} is the sync one"
            assert ast.unparse(twin.args) == ast.unparse(methods[method].args), f"{name}.{method}"
            pairs += 1
    assert pairs >= sum(map(len, TWINS.values()))


def _methods(node: ast.ClassDef) -> dict[str, Function]:
    """A class's methods, those of its bases included."""
    found: dict[str, Function] = {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes():
            found |= _methods(classes()[base.id])
    own = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    return found | {item.name: item for item in own}
