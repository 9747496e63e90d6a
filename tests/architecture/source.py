"""The package as text: its modules, what they import, and the functions and strings in them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "penstock"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    module: str
    """In full: `penstock.queue.claim`, `sqlalchemy`."""
    name: str | None
    line: int
    inside_function: bool
    for_types_only: bool


@dataclass(frozen=True)
class Module:
    name: str
    path: Path

    def __str__(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def layer(self) -> str:
        """The part right below the package; the package's own door and its `python -m` are on top of all."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else "__init__"

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def imports(self) -> list[Import]:
        return list(_imports(self.tree, inside_function=False, for_types_only=False))

    @property
    def imported(self) -> list[str]:
        """The modules that it imports when it runs; of `from package import module`, the package."""
        return [item.module for item in self.imports if not item.for_types_only]

    @property
    def docstring(self) -> str | None:
        return ast.get_docstring(self.tree)

    def is_in(self, *packages: str) -> bool:
        return any(self.name == package or self.name.startswith(f"{package}.") for package in packages)

    @cached_property
    def functions(self) -> list[tuple[str, Function]]:
        return list(_functions(self.tree, ""))

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]

    @cached_property
    def strings(self) -> list[tuple[int, str]]:
        """Every string but the docstrings; of a formatted one, its fixed parts."""
        skipped = _docstrings(self.tree) | _parts_of_formatted(self.tree)
        return [(line, text) for node, line, text in _strings(self.tree) if id(node) not in skipped]


@cache
def modules() -> list[Module]:
    return [Module(_name(path), path) for path in sorted(PACKAGE.rglob("*.py"))]


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(node: ast.AST, inside_function: bool, for_types_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(alias.name, None, child.lineno, inside_function, for_types_only)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for alias in names:
                    yield Import(module, alias.name, child.lineno, inside_function, for_types_only)
            case ast.ImportFrom():
                raise AssertionError(f"line {child.lineno}: imports name their module in full")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _imports(child, True, for_types_only)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _imports(child, inside_function, True)
            case _:
                yield from _imports(child, inside_function, for_types_only)


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield f"{prefix}{child.name}", child
                yield from _functions(child, f"{prefix}{child.name}.")
            case ast.ClassDef():
                yield from _functions(child, f"{prefix}{child.name}.")
            case _:
                yield from _functions(child, prefix)


def _strings(tree: ast.Module) -> Iterator[tuple[ast.AST, int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                yield node, node.lineno, text
            case ast.JoinedStr(values=values):
                fixed = [part.value if isinstance(part, ast.Constant) else "x" for part in values]
                yield node, node.lineno, "".join(map(str, fixed))


def _docstrings(tree: ast.Module) -> set[int]:
    """Strings that stand as statements by themselves: of modules, classes, functions and fields."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _parts_of_formatted(tree: ast.Module) -> set[int]:
    return {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
