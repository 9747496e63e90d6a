"""Every Python snippet in README and docs is run, file by file, as a reader would: from top to bottom.

The snippets of a file are one script, in a folder of its own, on a fresh SQLite database. A line of its own
`# file: name.py` at the top of a snippet writes it to that file first, so that later snippets and commands can import
it. Console snippets (```console) have their `$ penstock …` and `$ python …` lines run as well, after the snippets
above them.
"""

import ast
import os
import re
import shlex
from pathlib import Path

import pytest

from tests.forkserver import Program, finished, said_in

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(path for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")] if path.exists())
FENCE = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"\A# file: (\S+\.py)\n")
NEEDED = {
    "guides/transactional-enqueue.md": ("django",),
    "guides/django.md": ("django", "penstock.django.tasks_api", "jinja2"),
    "guides/web-frameworks.md": ("fastapi", "starlette", "litestar", "flask", "jinja2"),
}
"""Packages without which a document is skipped: those of extras, and of their examples."""
RUNNABLE = ("penstock ", "python ")


def snippets(document: Path) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in FENCE.finditer(document.read_text())]


def script(document: Path, folder: Path) -> str:
    """One program out of a document's snippets."""
    lines = [
        "import sys, pathlib",
        "from tests.docs.test_snippets import run",
        f"sys.path.insert(0, {str(folder)!r})",
    ]
    for kind, text in snippets(document):
        if kind == "console":
            lines += [f"run({command!r})" for command in commands(text)]
            continue
        named = NAMED.match(text)
        if named:
            lines.append(f"pathlib.Path({named[1]!r}).write_text({text!r})")
            lines.append(f"from {named[1].removesuffix('.py')} import *")
        else:
            lines.append(text)
    return "\n".join(lines)


def commands(text: str) -> list[list[str]]:
    found = []
    for line in text.splitlines():
        command = line.removeprefix("$ ")
        if line.startswith("$ ") and command.startswith(RUNNABLE):
            program, *rest = shlex.split(command, comments=True)
            found.append([*(["-m", "penstock"] if program == "penstock" else []), *rest])
    return found


def run(arguments: list[str]) -> None:
    """`python ARGUMENTS`, called by a document's program."""
    done = finished(Program(arguments, Path.cwd(), dict(os.environ), *said_in(Path.cwd())))
    assert done.returncode == 0, f"{shlex.join(arguments)}:\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if snippets(path)], ids=lambda path: str(path.relative_to(ROOT))
)
def test_snippets_run(document: Path, tmp_path: Path) -> None:
    for name in NEEDED.get("/".join(document.parts[-2:]), ()):
        pytest.importorskip(name)
    program = tmp_path / "snippets.py"
    program.write_text(script(document, tmp_path))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment |= {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = finished(Program([str(program)], tmp_path, environment, *said_in(tmp_path)))
    assert done.returncode == 0, f"{document.name}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def test_the_runner_sees_a_snippet_that_fails(tmp_path: Path) -> None:
    document = tmp_path / "broken.md"
    document.write_text("text\n\n```python\nraise ValueError('seen')\n```\n")
    assert "raise ValueError('seen')" in script(document, tmp_path)


def test_the_pipeline_of_the_readme_is_the_one_whose_types_are_checked() -> None:
    checked = (ROOT / "tests" / "typing" / "readme_pipeline.py").read_text()
    shown = next(text for _, text in snippets(ROOT / "README.md") if "@app.pipeline" in text)
    assert ast.dump(ast.parse(shown)) == ast.dump(ast.parse(checked)), "copy it: mypy reads only the file"
