"""docs/glossary.md, docs/internals/architecture.md: every module is named by words of the field; every path exists."""

import re
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, modules

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


def test_every_folder_is_in_the_drawing() -> None:
    drawing = (DOCS / "internals/architecture.md").read_text().split("```")[1]
    folders = {module.path.parent.name for module in MODULES} - {"penstock"}
    assert not sorted(folder for folder in folders if folder not in drawing)
