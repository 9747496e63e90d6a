"""Imports point one way, down the list of layers, and are all at the top of the file."""

from graphlib import CycleError, TopologicalSorter

from tests.architecture.source import Module, modules

LAYERS = [
    "errors",
    "lazy",
    "values",
    "settings",
    "telemetry",
    "database",
    "schema",
    "queue",
    "doors",
    "patience",
    "options",
    "patience",
    "job",
    "surroundings",
    "async_connection",
    "effects",
    "run_context",
    "context",
    "task",
    "pipelines",
    "reconcile",
    "runtime",
    "operate",
    "app",
    "testing",
    "cli",
    "__init__",
    "__main__",
]

MODULES = modules()
NAMES = {module.name for module in MODULES}


def test_every_module_has_a_layer() -> None:
    strangers = sorted({module.layer for module in MODULES} - set(LAYERS))
    assert not strangers, f"give {', '.join(strangers)} a place in LAYERS"


def test_imports_point_downwards() -> None:
    upward = [
        f"{module} imports {imported}"
        for module in MODULES
        for imported in _ours(module, with_types=True)
        if _height(_layer(imported)) > _height(module.layer)
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


def _layer(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def _height(layer: str) -> int:
    return LAYERS.index(layer) if layer in LAYERS else len(LAYERS)
