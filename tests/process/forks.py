"""Processes that play a part in a scene, and die where they are told to."""

from collections.abc import Iterator
from contextlib import contextmanager
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
    """The points that a part passes when nobody disturbs it, each once, in order."""
    file = folder / f"points-of-{part.scene}-{part.queue}"
    assert run(Part(**{**vars(part), "record": str(file)})) == 0
    return list(dict.fromkeys(file.read_text().split()))


def killed_at(point: str, part: Part) -> bool:
    """Play a part up to a point. False: it was over before it got there."""
    code = run(Part(**{**vars(part), "strike_at": point}))
    assert code in (0, -SIGKILL), f"{part} ended with code {code}"
    return code == -SIGKILL
