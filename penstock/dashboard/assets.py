"""Stylesheet, script and icons: served from memory under names that hold the hash of their content.

A name is never used for other content, so browsers keep them for a year and a new version is seen at once.
"""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from pathlib import Path

from penstock.dashboard.http import Response

FOLDER = Path(__file__).parent / "static"
A_YEAR = ("Cache-Control", "public, max-age=31536000, immutable")
TYPES = {".js": "text/javascript", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
HASH_LENGTH = 12


@cache
def names() -> dict[str, str]:
    """The versioned name of each file: `penstock.css` is `penstock.3fa2c1d0b9e8.css`."""
    return {path.name: _versioned(path) for path in sorted(FOLDER.iterdir()) if path.is_file()}


@cache
def version() -> str:
    """A text that changes with any of the files, or with any template."""
    digest = hashlib.sha256("".join(names().values()).encode())
    for path in sorted((FOLDER.parent / "templates").rglob("*.html")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:HASH_LENGTH]


def asset(versioned: str) -> Response | None:
    """The file of this versioned name; None if there is none."""
    plain = next((name for name, known in names().items() if known == versioned), None)
    if plain is None:
        return None
    path = FOLDER / plain
    kind = TYPES.get(path.suffix) or mimetypes.guess_type(plain)[0] or "application/octet-stream"
    text = kind.startswith("text/") or kind.endswith("+xml")
    return Response(200, _content(plain), f"{kind}; charset=utf-8" if text else kind, (A_YEAR,))


@cache
def _content(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def _versioned(path: Path) -> str:
    digest = hashlib.sha256(_content(path.name)).hexdigest()[:HASH_LENGTH]
    return f"{path.stem}.{digest}{path.suffix}"
