"""Finds the tests of a module: those whose files name it in their first lines, import it or mention it; and runs them.

`make tests-of MODULE=penstock/queue/settle.py`. Other arguments go to pytest.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"


def dotted(module: str) -> str:
    """The name of a module that is given by its name or its path."""
    name = module.strip().removesuffix(".py").removesuffix("/").replace("/", ".")
    return name.removesuffix(".__init__")


def imports(tree: ast.AST) -> set[str]:
    """Everything that a file imports; `from package import name` may be a module or something in one."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *[f"{node.module}.{alias.name}" for alias in node.names]}
    return found


@cache
def about(path: Path) -> set[str]:
    """The modules that the first line of a test file names before its colon: `queue/settle, queue/claim: ...`."""
    first = _text(path).partition("\n")[0].removeprefix('"""')
    paths = first.partition(": ")[0].split(", ")
    found = [ROOT / "penstock" / name for name in paths if re.fullmatch(r"[a-z_/]+", name)]
    return {_name(one) for one in found if one.with_suffix(".py").exists() or one.is_dir()}


def tests_of(module: str) -> list[Path]:
    """The test files that import this module, itself or by a helper of theirs, or that name it.

    Where there are none, those of the modules that import it: the nearest that have some.
    """
    asked, near = {dotted(module)}, {dotted(module)}
    while near:
        found = {path for name in near for path in _direct(name)}
        if found:
            return sorted(found)
        near = {above for name in near for above in _importers(name)} - asked
        asked |= near
    return []


def _direct(name: str) -> list[Path]:
    file = f"{name.replace('.', '/')}.py"
    files = _imported_by(TESTS)
    found = {path for path in files if name in files[path] or file in _text(path) or name in _dotted(path)}
    found |= {path for path in files if name in about(path)}
    helpers = {_name(path) for path in found if not path.name.startswith("test_")}
    found |= {path for path in files if files[path] & helpers}
    return [path for path in found if path.name.startswith("test_")]


def _importers(name: str) -> list[str]:
    """Modules of the package that import this one, also when it is first used; and the folder of a migration."""
    files = _imported_by(ROOT / "penstock")
    later = f'Lazy("{name}")'
    found = [_name(path) for path, imported in files.items() if name in imported or later in _text(path)]
    return [one.removesuffix(".__init__") for one in found] or [name.rpartition(".")[0]]


@cache
def _imported_by(folder: Path) -> dict[Path, set[str]]:
    return {path: imports(ast.parse(_text(path))) for path in sorted(folder.rglob("*.py"))}


@cache
def _dotted(path: Path) -> set[str]:
    """The dotted names in a file, with those that each begins with."""
    names = [name.split(".") for name in set(re.findall(r"\bpenstock(?:\.\w+)+", _text(path)))]
    return {".".join(parts[:end]) for parts in names for end in range(1, len(parts) + 1)}


@cache
def _text(path: Path) -> str:
    return path.read_text()


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def main() -> int:
    module, *options = sys.argv[1:] or [""]
    name = dotted(module)
    place = ROOT / name.replace(".", "/")
    if not name or not (place.with_suffix(".py").exists() or place.is_dir()):
        print(
            f"which module? There is no {module!r}: make tests-of MODULE=penstock/queue/settle.py",
            file=sys.stderr,
        )
        return 2
    found = [str(path.relative_to(ROOT)) for path in tests_of(module)]
    if not found:
        print(f"no test file names or imports {name}", file=sys.stderr)
        return 1
    print(*found, sep="\n", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", *found, *options]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
