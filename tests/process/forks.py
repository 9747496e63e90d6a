"""Processes that play a part in a scene, and die where they are told to."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile
from multiprocessing.process import BaseProcess
from pathlib import Path
from signal import SIGKILL

from tests.forkserver import FORKS
from tests.process.scenes import Part, play

LONGEST = 60


def run(part: Part) -> int:
    """Play a part to its end; the exit code, negative for a signal."""
    with started(part) as process:
        process.join(LONGEST)
        assert process.exitcode is not None, f"{part} did not end"
        return process.exitcode


@contextmanager
def started(part: Part) -> Iterator[BaseProcess]:
    process = FORKS.Process(target=play, args=(part,), daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def points_of(part: Part, folder: Path) -> list[str]:
    """The points that a part passes when no fault disturbs it, each once, in order."""
    return list(dict.fromkeys(_passed(part, folder)))


def windows_of(part: Part, folder: Path, stages: str) -> list[str]:
    """Every visit of the points of these stages, as `point:visit`, in order, from the first one's on.

    A transaction of several stages passes their ends one after the other with nothing in between: only the last is
    given.
    """
    visits: Counter[str] = Counter()
    found: list[str] = []
    last = ""
    for point in _passed(part, folder):
        visits[point] += 1
        stage, end = point.split(".") if "." in point else (point, "")
        if stage not in stages.split():
            continue
        if end == last and not end.isdigit():
            found.pop()
        found.append(f"{point}:{visits[point]}")
        last = end
    first = stages.split()[0]
    return list(dropwhile(lambda window: not window.startswith(first), found))


def _passed(part: Part, folder: Path) -> list[str]:
    file = folder / f"points-of-{part.scene}-{part.queue}"
    assert run(Part(**{**vars(part), "record": str(file)})) == 0
    return file.read_text().split()


def killed_at(point: str, part: Part) -> bool:
    """Play a part up to a point. False: it was over before it got there."""
    code = run(Part(**{**vars(part), "strike_at": point}))
    assert code in (0, -SIGKILL), f"{part} ended with code {code}"
    return code == -SIGKILL
