"""docs/glossary.md, docs/internals/architecture.md: every module is named by words of the field; every path exists."""

import re
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, modules
from tests.architecture.test_imports import LAYERS

DOCS = Path(__file__).parents[2] / "docs"
PLAIN = frozenset(
    """
    access actions admin advice annotations api app application apply apps asgi assets async autoreload backend
    blueprint builder call cancel catalog charsets charts check child claimed cli clock codes command commands
    compatibility conditional context control counts crash cursor cursors dashboard database define demo
    diagnostics display distributed doctor draft engine enqueue enqueued error errors events exit failure finish
    flask fluent flush forms function graph host http identity ids import inline inputs item job jobs json
    keeper layout lazy limiter limits load local lock locks login logs main mcp methods metrics migrate model
    mysql operate options other output overview page penstock pictures pipeline pipelines plain plugin postgres
    process processes prometheus pytest queue read reconcile reconcilers records related render repair reset
    result retry row rows run runner runs runtime schema search secrets services settings show shutdown sqlite
    start state statements status step svg tables task tasks telemetry testing text thread timeline tracing
    transaction transactions troubles typed types unknown upkeep url user value values version view wait worker
    wsgi
    """.split()  # noqa: SIM905 - a list of words
)
"""Words that an engineer who knows queues and databases needs no page for."""


def _words() -> set[str]:
    lines = [line for line in (DOCS / "glossary.md").read_text().splitlines() if line.startswith("| ")]
    first = [line.split("|")[1] for line in lines[1:]]
    return {word for cell in first for word in re.findall(r"[a-z]+", cell.lower())}


def _known(part: str, words: set[str]) -> bool:
    forms = {
        part,
        part.removesuffix("s"),
        part.removesuffix("es"),
        f"{part}s",
        part.replace("wakeup", "wake"),
    }
    return bool(forms & (words | PLAIN)) or part in {"os", "wakeups", "wakeup", "subjects", "signals"}


MODULES = [m for m in modules() if "migrations" not in m.name and m.path.stem not in ("__init__", "__main__")]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_is_named_by_words_of_the_field(module: object) -> None:
    words = _words()
    parts = Path(str(module)).stem.split("_")
    assert not [part for part in parts if not _known(part, words)]


@pytest.mark.parametrize("page", ["glossary.md", "internals/architecture.md"])
def test_every_path_on_the_page_exists(page: str) -> None:
    paths = re.findall(r"`((?:[a-z_]+/)*[a-z_]+(?:\.py|/))`", (DOCS / page).read_text())
    missing = [path for path in paths if not (PACKAGE / path).exists()]
    assert paths
    assert not missing


DRAWING = (DOCS / "internals/architecture.md").read_text().split("```")[1]
FOLDERS = sorted({module.path.parent.relative_to(PACKAGE).as_posix() for module in MODULES} - {"."})


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_is_in_the_drawing(folder: str) -> None:
    """By its whole path, or inside the box of the folder that it is in."""
    above, _, own = folder.rpartition("/")
    assert re.search(rf"(?<![\w/]){folder}/", DRAWING) or re.search(rf"\b{own}\b", _box(above))


def test_a_folder_is_looked_for_where_it_belongs() -> None:
    """There are two folders `pages`, and one of them was not drawn."""
    assert "limits" in _box("queue")
    assert "limits" not in _box("pipelines")
    assert "advance" in _box("pipelines")
    assert _box("operate") == ""


def _box(folder: str) -> str:
    """The text in the box with the name of a folder on its upper edge."""
    lines = DRAWING.splitlines()
    for number, line in enumerate(lines):
        name = re.search(rf"┌[─┴]* {folder}/ [─┴]*┐", line)
        if folder and name is not None:
            inside = [below[name.start() : name.end()] for below in lines[number + 1 :]]
            end = next(row for row, text in enumerate(inside) if text.startswith("└"))
            return "\n".join(inside[:end])
    return ""


def test_the_layers_on_the_pages_are_those_of_the_test() -> None:
    architecture = (DOCS / "internals/architecture.md").read_text()
    listed = architecture.partition("Imports point down this list")[2].partition("Inside `pipelines/`")[0]
    assert re.findall(r"`(\w+)`", listed) == [layer for layer in LAYERS if not layer.startswith("__")]
    contributing = (DOCS.parent / "CONTRIBUTING.md").read_text()
    named = (
        contributing.partition("imports point one way, down this list:\n")[2]
        .partition("    tests/")[0]
        .split()
    )
    assert named == [layer for layer in LAYERS if layer in named]
    assert {module.layer for module in MODULES if module.name.count(".") > 1} <= set(named)
