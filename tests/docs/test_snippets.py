"""Every Python snippet in README and docs is run, each as a file of its own, imports included.

The snippets of a page share a folder and a SQLite database, as for a reader who tries one after the other. A first line
`# file: name.py` gives the file its name, so that later snippets and commands can import it; the others are
`snippet_1.py` and so on. Console snippets (```console) have their `$ penstock …` and `$ python …` lines run as well.
"""

import ast
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forkserver import Program, finished, said_in

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(path for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")] if path.exists())
FENCE = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"\A# file: (\S+\.py)\n")
NEEDED = {
    "README.md": ("fastapi", "jinja2", "opentelemetry.sdk"),
    "guides/dashboard.md": ("jinja2",),
    "guides/transactional-enqueue.md": ("django",),
    "guides/django.md": ("django", "penstock.django.tasks_api", "jinja2"),
    "operations/tracing.md": ("opentelemetry.sdk", "sentry_sdk"),
    "guides/web-frameworks.md": ("fastapi", "starlette", "litestar", "flask", "jinja2"),
}
"""Packages without which a document is skipped: those of extras, and of their examples."""
RUNNABLE = ("penstock ", "python ")


def snippets(document: Path) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in FENCE.finditer(document.read_text())]


def programs(document: Path, folder: Path) -> Iterator[list[str]]:
    """The arguments of Python for each snippet and command, in order; the file of a snippet is there by then."""
    for number, (kind, text) in enumerate(snippets(document), 1):
        if kind == "console":
            yield from commands(text)
            continue
        named = NAMED.match(text)
        name = named[1] if named else f"snippet_{number}.py"
        (folder / name).write_text(text)
        yield [name]


def commands(text: str) -> list[list[str]]:
    found = []
    for line in text.splitlines():
        command = line.removeprefix("$ ")
        if line.startswith("$ ") and command.startswith(RUNNABLE):
            program, *rest = shlex.split(command, comments=True)
            found.append([*(["-m", "penstock"] if program == "penstock" else []), *rest])
    return found


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if snippets(path)], ids=lambda path: str(path.relative_to(ROOT))
)
def test_snippets_run(document: Path, tmp_path: Path) -> None:
    for name in NEEDED.get(document.relative_to(ROOT).as_posix().removeprefix("docs/"), ()):
        pytest.importorskip(name)
    run(document, tmp_path)


def run(document: Path, folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment |= {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    for arguments in programs(document, folder):
        done = finished(Program(arguments, folder, environment, *said_in(folder)))
        said = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert done.returncode == 0, f"{document.name}: python {shlex.join(arguments)}:\n{said}"


def test_the_runner_sees_a_snippet_that_fails(tmp_path: Path) -> None:
    document = tmp_path / "broken.md"
    document.write_text("text\n\n```python\nhere = 1\n```\n\n```python\nprint(here)\n```\n")
    with pytest.raises(AssertionError, match="name 'here' is not defined"):
        run(document, tmp_path)


def test_the_pipeline_of_the_readme_is_the_one_whose_types_are_checked() -> None:
    checked = (ROOT / "tests" / "typing" / "readme_pipeline.py").read_text()
    shown = next(text for _, text in snippets(ROOT / "README.md") if "@app.pipeline" in text)
    assert ast.dump(ast.parse(shown)) == ast.dump(ast.parse(checked)), "copy it: mypy reads only the file"
