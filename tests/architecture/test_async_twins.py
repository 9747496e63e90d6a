"""What touches the database exists for sync and for async callers, with the same arguments."""

import ast

import pytest

from tests.architecture.source import Function, modules

TWINS = {
    "Penstock": {"audit", "close", "dead_letters", "hint", "migrate", "resume", "run", "runs"},
    "Task": {"enqueue", "enqueue_many"},
    "Job": {"attempts", "cancel", "result", "retry"},
    "Pipeline": {"trigger", "trigger_many"},
    "Run": {
        "cancel",
        "diff",
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

CLASSES = {node.name: node for module in modules() for node in module.classes}


@pytest.mark.parametrize("name", sorted(TWINS.keys() & CLASSES.keys()))
def test_what_the_contract_names_has_both(name: str) -> None:
    methods = _methods(CLASSES[name])
    expected = TWINS[name] | {f"{method}_async" for method in TWINS[name]}
    assert not expected - methods.keys()


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_twins_take_the_same_arguments(name: str) -> None:
    methods = _methods(CLASSES[name])
    for method in [method for method in methods if method.endswith("_async") and not method.startswith("_")]:
        twin = methods.get(method.removesuffix("_async"))
        assert twin is not None, f"{name}.{method} has no sync twin"
        assert isinstance(methods[method], ast.AsyncFunctionDef), f"{name}.{method} cannot be awaited"
        assert isinstance(twin, ast.FunctionDef), f"{name}.{twin.name} is the sync one"
        assert ast.unparse(twin.args) == ast.unparse(methods[method].args)


def _methods(node: ast.ClassDef) -> dict[str, Function]:
    """A class's methods, those of its bases included."""
    found: dict[str, Function] = {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in CLASSES:
            found |= _methods(CLASSES[base.id])
    own = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    return found | {item.name: item for item in own}
