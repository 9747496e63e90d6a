"""Finds the tests of a module: those whose files import it, or name it, and runs them.

`make tests-of MODULE=penstock/queue/settle.py`. Other arguments go to pytest.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
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


def tests_of(module: str) -> list[Path]:
    """The test files that import this module, itself or by a helper of theirs, or that name it."""
    name = dotted(module)
    named = re.compile(rf"\b{re.escape(name)}\b|{re.escape(name.replace('.', '/'))}\.py")
    files = {path: path.read_text() for path in sorted(TESTS.rglob("*.py"))}
    imported = {path: imports(ast.parse(text)) for path, text in files.items()}
    found = {path for path, text in files.items() if name in imported[path] or named.search(text)}
    helpers = {_name(path) for path in found if not path.name.startswith("test_")}
    found |= {path for path in files if imported[path] & helpers}
    return sorted(path for path in found if path.name.startswith("test_"))


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
