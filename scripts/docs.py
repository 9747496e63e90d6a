"""Build the documentation as a static site: python scripts/docs.py [FOLDER], by default build/site.

The pages of docs/, the README, the changelog and the rules for contributors are put into one folder, with a reference
that is made from the docstrings. Sphinx builds the site from it, and ends with an error for every link that leads
nowhere. `llms.txt` and `llms-full.txt`, for programs that read, lie beside it.

Sphinx has an environment of its own, .cache/docs, which `make docs` makes from requirements-docs.txt.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path

from scripts.api_pages import api_pages

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SPHINX = ROOT / ".cache" / "docs" / "bin" / "python"
BESIDE = {
    "README.md": "project/readme.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "examples/README.md": "project/examples.md",
}
"""Pages from outside of docs/, and where they are in the site."""
FENCED = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def main() -> None:
    site = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    if not SPHINX.exists():
        raise SystemExit("there is no Sphinx in .cache/docs: run `make docs`, which installs it")
    build(site)
    pages = len(list(site.rglob("*.html")))
    print(f"{pages} pages in {relpath(site)}: open {relpath(site / 'index.html')}")


def build(site: Path) -> None:
    """Build the site; raises `SystemExit` with the words of Sphinx if a page or a link is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder) / "pages"
        staged(stage)
        shutil.rmtree(site, ignore_errors=True)
        options = ["-b", "html", "-W", "--keep-going", "-q", "-j", "2", "-d", f"{folder}/trees"]
        command = [str(SPHINX), "-m", "sphinx", *options, str(stage), str(site)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the site could not be built:\n{done.stderr}")
        for path in site.rglob(".buildinfo"):
            path.unlink()
        (site / "llms.txt").write_text(outline())
        (site / "llms-full.txt").write_text(whole_text())


def staged(stage: Path) -> None:
    """Put all pages into one folder, with links that hold there."""
    shutil.copytree(DOCS, stage)
    shutil.copy(ROOT / "scripts" / "site" / "conf.py", stage)
    for source, place in places().items():
        if source.suffix == ".md":
            target = stage / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(moved(source.read_text(), source, place))
    (stage / "api").mkdir()
    for name, text in api_pages().items():
        (stage / "api" / f"{name}.md").write_text(text)
    index = stage / "index.md"
    index.write_text(index.read_text() + "".join(tables_of_contents()))


def places() -> dict[Path, str]:
    """Where each file is in the site."""
    inside = {path: str(path.relative_to(DOCS)) for path in DOCS.rglob("*") if path.is_file()}
    return inside | {ROOT / name: place for name, place in BESIDE.items()}


def moved(text: str, source: Path, place: str) -> str:
    """A page with its links as they are in the site; of a link to a file that is not part of it, only the words."""
    known = places()

    def link(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        path, sign, anchor = target.partition("#")
        if "://" in target or not path:
            return match[0]
        found = (source.parent / path).resolve()
        if not found.exists():
            return match[0]  # for Sphinx to complain of
        if found not in known:
            return words
        return f"{picture}[{words}]({relpath(known[found], Path(place).parent)}{sign}{anchor})"

    parts = FENCED.split(text)
    # Links inside of code stay as they are; links around code, such as [`x`](y), are put together first.
    code = dict(enumerate(parts[1::2]))
    whole = "".join(part if not number % 2 else f"\0{number // 2}\0" for number, part in enumerate(parts))
    return re.sub(r"\0(\d+)\0", lambda match: code[int(match[1])], LINK.sub(link, whole))


def sections() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """The parts of docs/index.md, and title, path and purpose of the pages in each."""
    parts = SECTION.split((DOCS / "index.md").read_text())
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        rows = re.findall(r"\[([^\]]+)\]\(([^)#]+\.md)\)(?: \| (.*) \|)?", text)
        yield title, [(name, path, purpose) for name, path, purpose in rows if "../" not in path]


def tables_of_contents() -> Iterator[str]:
    """The side bar, from docs/index.md; a page that is not named there makes Sphinx complain."""
    listed = [(title, [path for _, path, _ in pages]) for title, pages in sections()]
    decisions = sorted(f"decisions/{path.name}" for path in DOCS.glob("decisions/0*.md"))
    listed += [
        ("Signatures", [f"api/{name}.md" for name in api_pages()]),
        ("Decisions", decisions),
        ("Project", list(BESIDE.values())),
    ]
    for title, paths in listed:
        pages = "\n".join(dict.fromkeys(paths))
        yield f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n"


def outline() -> str:
    """The contents of llms.txt: what Penstock is, and every page with its purpose."""
    promise = (ROOT / "README.md").read_text().split("\n\n")[1].replace("\n", " ")
    lines = ["# Penstock", "", f"> {promise}", ""]
    for title, pages in sections():
        lines += [f"## {title}", ""]
        for name, path, purpose in pages:
            lines.append(f"- [{name}]({path.removesuffix('.md')}.html): {purpose}".removesuffix(": "))
        lines.append("")
    return "\n".join(lines)


def whole_text() -> str:
    """The contents of llms-full.txt: README and all pages for users, one after the other."""
    inside = ("internals/", "decisions/")
    paths = [path for _, pages in sections() for _, path, _ in pages if not path.startswith(inside)]
    texts = [(DOCS / path).read_text() for path in dict.fromkeys(paths)]
    return "\n\n---\n\n".join([(ROOT / "README.md").read_text(), *texts])


if __name__ == "__main__":
    main()
