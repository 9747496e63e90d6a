"""queue/stack_dumps, runtime/stacks: Stacks of a process on demand: asked for on its page, answered by the process,
kept for a while.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from penstock import Penstock
from penstock.queue import stack_dumps
from penstock.runtime.stacks import MOST, all_stacks
from penstock.runtime.worker import Worker
from tests.conformance.dashboard.browser import Browser, browser
from tests.conformance.embedded import beside_a_worker
from tests.waiting import eventually, until


def seen(visitor: Browser, process: str) -> Any:
    return visitor.get(f"/processes/{process}.json").json["stacks"]


def answered(visitor: Browser, process: str) -> str:
    def look() -> str | None:
        found = seen(visitor, process)
        return found["text"]["text"] if found["answered_at"] else None

    return str(eventually(look))


def test_the_right_to_see_payloads_is_needed(app: Penstock) -> None:
    async def main(worker: Worker) -> None:
        id = worker.identity.id
        ann, bob = browser(app), browser(app, ["look", "operate"])
        done = await asyncio.to_thread(ann.act, "ask-stacks", process=id)
        assert done.status == 200
        text = await asyncio.to_thread(answered, ann, id)
        assert "penstock-heartbeat" in text
        hidden = (await asyncio.to_thread(seen, bob, id))["text"]
        assert (hidden["text"], hidden["size"]) == (None, len(text))
        page = await asyncio.to_thread(bob.get, f"/processes/{id}")
        assert "penstock-heartbeat" not in page.text
        assert "your rights do not include payloads" in page.text
        assert "Ask for its stacks" not in page.text
        plain = await asyncio.to_thread(browser(app, ["look"]).act, "ask-stacks", process=id)
        assert plain.status == 403

    beside_a_worker(app, main)


def test_two_that_ask_and_one_that_comes_too_late(app: Penstock) -> None:
    """Each request is answered anew; a process that is gone, or is a supervisor, cannot be asked."""

    async def main(worker: Worker) -> None:
        id = worker.identity.id
        ann = browser(app)
        with ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(ann.act, "ask-stacks", process=id) for _ in range(4)]
            answers = await asyncio.gather(*map(asyncio.wrap_future, asked))
        assert {answer.status for answer in answers} == {200}
        await asyncio.to_thread(answered, ann, id)
        first = (await asyncio.to_thread(seen, ann, id))["answered_at"]
        await asyncio.to_thread(ann.act, "ask-stacks", process=id)
        await until(lambda: app.database.read(stack_dumps.find, id) is not None)
        await asyncio.to_thread(answered, ann, id)
        assert (await asyncio.to_thread(seen, ann, id))["answered_at"] > first
        gone = await asyncio.to_thread(ann.act, "ask-stacks", process="0199aaaa-0000-7000-8000-000000000000")
        assert gone.status == 404

    beside_a_worker(app, main)


def test_answers_are_kept_for_an_hour(app: Penstock) -> None:
    app.prepare()
    ids = [f"0199aaaa-0000-7000-8000-00000000000{n}" for n in (1, 2)]
    app.database.in_transaction(stack_dumps.ask, ids[0])
    assert app.database.in_transaction(stack_dumps.answer, ids[0], "here")
    assert not app.database.in_transaction(stack_dumps.answer, ids[0], "again"), "it is answered"
    assert not app.database.in_transaction(stack_dumps.answer, ids[1], "never asked")
    app.database.in_transaction(stack_dumps.prune)
    assert app.database.read(stack_dumps.find, ids[0]) is not None
    app.database.shift_clock(int((stack_dumps.KEPT + 1) * 1_000_000))
    app.database.in_transaction(stack_dumps.prune)
    assert app.database.read(stack_dumps.find, ids[0]) is None


@pytest.mark.one_database
def test_stacks_are_bounded_and_plain(app: Penstock) -> None:
    """Idle threads of a pool share one stack; the whole has an end; every database can store it."""
    over = threading.Event()

    def deep(left: int) -> None:
        deep(left - 1) if left else over.wait()

    pool = [threading.Thread(target=over.wait, name=f"pool-{n}") for n in range(3)]
    depths = [threading.Thread(target=deep, args=(300 + n,), name=f"deep-ÿ\x00-{n}") for n in range(3)]
    for thread in (*pool, *depths):
        thread.start()
    try:
        found = all_stacks(None)
    finally:
        over.set()
        for thread in (*pool, *depths):
            thread.join()
    assert "Threads pool-0, pool-1, pool-2" in found
    assert len(found) <= MOST
    assert found.isascii()
    assert "\x00" not in found
