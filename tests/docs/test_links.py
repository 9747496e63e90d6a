"""Every link between the documents leads somewhere, headings included."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def prose(document: Path) -> str:
    return FENCED.sub("", document.read_text())


def anchors(document: Path) -> set[str]:
    """What the headings of a document are linked by."""
    titles = [re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(prose(document))]
    return {title.replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in LINK.findall(prose(document)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []
