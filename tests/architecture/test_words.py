"""Sentences name the actor (the worker, the caller, the run), and docstrings begin with what a thing is or does."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import Module, modules

NO_ACTOR = re.compile(r"\b(whoever|nobody|somebody)\b", re.IGNORECASE)
NO_SUBJECT = re.compile(r"\s*(What|Who|Whoever|Nobody|It|None)\b")

SAMPLE = '''
"""What it holds."""
LIMIT = 3
"""None: no limit."""

class Item:
    """A job that somebody claims."""

    def name(self):
        """It has one. Its Name is What It is."""
        return "whoever"  # Nobody asks
'''


def test_a_sentence_names_its_actor() -> None:
    places = [place for module in modules() for place in words_without_actor(module)]
    assert not places, "\n".join(places)


def test_a_docstring_begins_with_its_subject() -> None:
    places = [place for module in modules() for place in docstrings_without_subject(module)]
    assert not places, "\n".join(places)


def test_both_kinds_are_found_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE)
    sample = Module("sample", path)
    assert [line for line, _ in _words(sample)] == [7, 11, 11]
    assert [line for line, _ in _beginnings(sample)] == [2, 4, 10]


def words_without_actor(module: Module) -> list[str]:
    return [f"{module}:{line}: {word}" for line, word in _words(module)]


def docstrings_without_subject(module: Module) -> list[str]:
    return [f"{module}:{line}: {text}" for line, text in _beginnings(module)]


def _words(module: Module) -> Iterator[tuple[int, str]]:
    """In code, comments and messages alike."""
    for number, line in enumerate(module.text.splitlines(), 1):
        for found in NO_ACTOR.finditer(line):
            yield number, found[0]


def _beginnings(module: Module) -> list[tuple[int, str]]:
    """Docstrings are strings that stand as statements by themselves: of modules, classes, functions and attributes."""
    found = []
    for node in ast.walk(module.tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if NO_SUBJECT.match(text):
                found.append((node.lineno, text.strip().splitlines()[0]))
    return sorted(found)
