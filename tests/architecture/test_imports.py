"""Imports point one way, down the list of layers, and are all at the top of the file."""

from graphlib import CycleError, TopologicalSorter

import pytest

from tests.architecture.source import Module, modules

LAYERS = [
    "errors",
    "values",
    "settings",
    "telemetry",
    "database",
    "schema",
    "queue",
    "app_services",
    "async_bridge",
    "result_wait",
    "updates",
    "handler_environment",
    "job_transaction",
    "run_context",
    "context",
    "step_calls",
    "middleware",
    "job",
    "task_options",
    "task",
    "pipelines",
    "reconcile",
    "schedules",
    "runtime",
    "operate",
    "app",
    "dashboard",
    "testing",
    "assistant",
    "cli",
    "pytest_plugin",
    "integrations",
    "django",
    "__init__",
    "__main__",
]
ROOMS = {
    "penstock.pipelines": ["model", "plan", "define", "advance", "lifecycle", "maintenance"],
    "penstock.runtime": ["pump", "executors", "liveness", "reconcilers", "supervisor"],
}
"""The sub-packages of a package, in the order in which they may import each other: a later one imports earlier ones.
The modules of the package itself may import all of them."""

RETURNED = {"penstock.schedules.schedule"}
"""Modules of handles that methods of lower layers return: these may name them, for type checkers only."""

NAMES_ALL = {"penstock.app_services"}
"""The protocol of the app: it stands low and names, for type checkers only, what the app has from the layers above."""

MODULES = modules()
NAMES = {module.name for module in MODULES}


def test_every_layer_is_named_once() -> None:
    assert len(LAYERS) == len(set(LAYERS))


def test_every_module_has_a_layer() -> None:
    strangers = sorted({module.layer for module in MODULES} - set(LAYERS))
    assert not strangers, f"give {', '.join(strangers)} a place in LAYERS"


def test_imports_point_downwards() -> None:
    upward = [
        f"{module} imports {imported}"
        for module in MODULES
        for imported in _ours(module, with_types=True)
        if _height(_layer(imported)) > _height(module.layer)
        if imported in _ours(module, with_types=False)
        or (imported not in RETURNED and module.name not in NAMES_ALL)
    ]
    assert not upward, "\n".join(upward)


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_of_a_package_import_one_way(package: str) -> None:
    upward = [
        f"{module} imports {imported}"
        for module in MODULES
        for imported in _ours(module, with_types=True)
        if (mine := _room(package, module.name)) is not None
        and (theirs := _room(package, imported)) is not None
        if theirs > mine
    ]
    assert not upward, "\n".join(upward)


def test_there_are_no_import_cycles() -> None:
    graph = {module.name: _ours(module, with_types=False) - {module.name} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" imports ".join(reversed(error.args[1]))) from None


def test_no_import_hides_in_a_function() -> None:
    hidden = [
        f"{module}:{item.line}" for module in MODULES for item in module.imports if item.inside_function
    ]
    assert not hidden, "\n".join(hidden)


def _ours(module: Module, with_types: bool) -> set[str]:
    """The modules of the package that this one imports; `from package import submodule` is the submodule."""
    found = set()
    for item in module.imports:
        if item.module.partition(".")[0] == "penstock" and (with_types or not item.for_types_only):
            submodule = f"{item.module}.{item.name}"
            found.add(submodule if submodule in NAMES else item.module)
    return found


def _room(package: str, name: str) -> int | None:
    """The height of the sub-package that this module is in; None for what is not in this package's rooms."""
    if not name.startswith(f"{package}."):
        return None
    room = name.removeprefix(f"{package}.").partition(".")[0]
    return ROOMS[package].index(room) if room in ROOMS[package] else None


def _layer(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def _height(layer: str) -> int:
    return LAYERS.index(layer) if layer in LAYERS else len(LAYERS)
