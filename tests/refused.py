"""What a system that is short of threads does."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_threads(name: str, times: int) -> Iterator[list[str]]:
    """So many threads whose names begin like this cannot be started; yields the names of those."""
    start = threading.Thread.start
    refused: list[str] = []

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(name) and len(refused) < times:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield refused
