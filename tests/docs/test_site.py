"""The documentation as a site: every page has a place in it, and it is built without a warning."""

from pathlib import Path

import pytest

from scripts import docs
from scripts.api_pages import api_pages


def test_every_page_is_named_in_the_index() -> None:
    named = {path for _, pages in docs.sections() for _, path, _ in pages} | {"index.md"}
    there = {str(path.relative_to(docs.DOCS)) for path in docs.DOCS.rglob("*.md")}
    assert {path for path in there - named if not path.startswith("decisions/0")} == set()


def test_links_to_files_outside_of_the_site_are_words() -> None:
    page = docs.ROOT / "examples" / "README.md"
    text = "[enrich](enrich/enrich.py) [`tasks`](../docs/guides/tasks.md#options) `[a](b)` [x](https://a.org)"
    said = "enrich [`tasks`](../guides/tasks.md#options) `[a](b)` [x](https://a.org)"
    assert docs.moved(text, page, "project/examples.md") == said


def test_the_reference_has_the_methods_that_users_call() -> None:
    pages = api_pages()
    for page, said in {
        "app": "app.task",
        "tasks": "task.enqueue(",
        "pipelines": "run.signal(",
        "testing": "drain(",
    }.items():
        assert said in pages[page]
    assert "may_replace" not in pages["tasks"]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    if not docs.SPHINX.exists():
        pytest.skip("`make docs` installs what builds the site")
    docs.build(tmp_path / "site")
    assert (tmp_path / "site" / "searchindex.js").exists()
    assert "[Pipelines](guides/pipelines.html)" in (tmp_path / "site" / "llms.txt").read_text()
    assert "## What is promised" in (tmp_path / "site" / "llms-full.txt").read_text()
