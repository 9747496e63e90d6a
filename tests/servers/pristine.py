"""The data of a server that was never started: made once in a session, then copied."""

import fcntl
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

FOLDER: Path | None = None
"""What all processes of a session share; without it every server makes its own data."""


def made_once(data: Path, edition: str, make: Callable[[], None]) -> None:
    """Fill the folder `data` as `make` does, or by a copy of what it made for another server of the same edition."""
    if FOLDER is None:
        return make()
    kept = FOLDER / f"pristine-{sha256(edition.encode()).hexdigest()[:12]}"
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not kept.exists():
            make()
            _copy(data, draft := kept.with_suffix(".draft"))
            draft.rename(kept)
            return None
    return _copy(kept, data)


def _copy(source: Path, target: Path) -> None:
    """With its owner: a server may run as another user."""
    subprocess.run(["cp", "-a", source, target], check=True)
