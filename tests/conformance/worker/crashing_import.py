"""An application whose import ends or starves a handler's process, as long as a file says so."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

from penstock import Penstock

app = Penstock(os.environ["PENSTOCK_TEST_SHOP_URL"], executor_processes=1)
HOW = Path(os.environ["PENSTOCK_TEST_IMPORT"])


def meet() -> None:
    """Only in a handler's process, not in the worker."""
    if multiprocessing.parent_process() is None:
        return
    match HOW.read_text():
        case "exit":
            os._exit(7)
        case "starve":
            raise MemoryError
        case "limit":
            import resource  # noqa: PLC0415 - only where the limit is wanted

            resource.setrlimit(resource.RLIMIT_AS, (2**27, 2**27))
            bytearray(2**30)


meet()


@app.task(executor="process", retries=0, max_crashes=0)
def work(number: int) -> int:
    return number
