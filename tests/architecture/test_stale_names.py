"""Names in backticks in docstrings and comments of `penstock` lead to modules, classes and functions that exist."""

import ast
import importlib.util
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.source import PACKAGE, ROOT, Module, modules

DOTTED = re.compile(r"`+([a-zA-Z_]\w*(?:\.\w+)+)`+")
SEEN = re.compile(r"\(?\b[Ss]ee\s+`+(\w+)`+")
PATHS = re.compile(r"`+(\w[\w/]*/[\w/]*\w\.\w+)`+")
FILE_ENDINGS = (".css", ".js", ".svg", ".html", ".py")
HASH = re.compile(r"\.[0-9a-f]{12}\.")

VARIABLES = {
    "app": ("Penstock", "Pipelines", "Operating"),
    "call": ("HandlerCall", "Publication"),
    "dialect": ("Dialect",),
    "run": ("Run", "RunControl"),
}
"""Variables that docstrings speak of, with their classes."""

OTHERS = {
    "django.tasks": "of Django 6.0, or of the package django-tasks",
    "queue.publish": "an operation of Sentry",
    "queue.process": "an operation of Sentry",
    "penstock.view_dashboard": "a permission of Django",
    "tasks.py": "a file of the user's",
    "manage.py": "a file of the user's",
}
LABELS = re.compile(r"(settle|execute)\.(\d|commit|committed|before|after)$")
"""Fault points, which `tests/conformance` holds true."""

SAMPLE = '''
"""Words, as `sample.found` and `sample.missing` say; see `found`, or see `absent`.

`Thing.size` and `Thing.weight`; `queue/settle.py` and `queue/nothing.py`; `asyncio.run` and `asyncio.walk`.
"""

class Thing:
    size: int

def found():
    return 1  # see `lost`
'''


def test_names_in_backticks_exist() -> None:
    places = [f"{module}:{line}: {name}" for module in modules() for line, name in _stale(module, modules())]
    assert not places, "\n".join(places)


def test_stale_names_are_found(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE)
    sample = Module("sample", path)
    stale = [name for _, name in _stale(sample, [sample])]
    assert stale == ["Thing.weight", "absent", "asyncio.walk", "lost", "queue/nothing.py", "sample.missing"]


def _stale(module: Module, all_of_them: list[Module]) -> list[tuple[int, str]]:
    found = set()
    homes = _homes(tuple(all_of_them))
    own = _names(module) | {name.rpartition(".")[2] for name in homes}
    for line, text in _texts(module):
        found |= {(line, name) for name in DOTTED.findall(text) if not _is_known(name, homes)}
        found |= {(line, name) for name in SEEN.findall(text) if name not in own}
        bases = (ROOT, PACKAGE, *module.path.parents[:2])
        found |= {
            (line, name) for name in PATHS.findall(text) if not any((base / name).exists() for base in bases)
        }
    return sorted(found, key=lambda place: place[1])


def _is_known(name: str, homes: dict[str, set[str]]) -> bool:
    if name in OTHERS or LABELS.match(name):
        return True
    if name.endswith(FILE_ENDINGS):
        return any(PACKAGE.rglob(HASH.sub(".", name)))
    home, _, last = name.rpartition(".")
    wanted = (home, *VARIABLES.get(home, ()))
    return any(
        last in homes[each] for each in homes if f".{each}".endswith(tuple(f".{one}" for one in wanted))
    ) or (not name.startswith("penstock.") and _is_elsewhere(home, last))


def _is_elsewhere(home: str, last: str) -> bool:
    """True for a name of another library, which is imported to see."""
    try:
        library = importlib.import_module(home)
    except ImportError:
        return False
    return hasattr(library, last) or importlib.util.find_spec(f"{home}.{last}") is not None


def _texts(module: Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@cache
def _homes(all_of_them: tuple[Module, ...]) -> dict[str, set[str]]:
    """The names in modules, folders and classes, by the full names of these."""
    homes: dict[str, set[str]] = defaultdict(set)
    for module in all_of_them:
        above, _, own = module.name.rpartition(".")
        homes[module.name] |= _names(module)
        if above:
            homes[above].add(own)
        for node in module.classes:
            homes[f"{module.name}.{node.name}"] |= _members(node)
    return homes


@cache
def _names(module: Module) -> set[str]:
    """The names that a module defines or imports at any depth."""
    found = {alias.asname or alias.name for alias in _aliases(module.tree)}
    for node in ast.walk(module.tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.arg(arg=name):
                found.add(name)
    return found


def _aliases(tree: ast.Module) -> Iterator[ast.alias]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from node.names


def _members(node: ast.ClassDef) -> set[str]:
    found = set()
    for child in ast.walk(node):
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return found
