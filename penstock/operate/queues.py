"""Finds names of queues that nothing has used, as a typing error leaves them.

A queue needs no declaration: a name is known if a task, a pipeline or a schedule of the app has it, or if jobs have
been in it. A queue that is paused before its first job is not known by that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

from penstock.database.transaction import Transaction
from penstock.operate.overview import queue_counts
from penstock.values.parse import nearest
from penstock.values.typed_json.json_text import decode

WORKED_OFF = "SELECT queue FROM {rollups} UNION SELECT queue FROM {tallies}"


def find_unused(app: Any, names: Sequence[str]) -> dict[str, str]:
    """Find those of these names that nothing has used, each with the nearest known name as advice, or no advice."""
    if not names:
        return {}
    known = set(_declared(app))
    left = [name for name in names if name not in known]
    if left:
        known |= app.database.read(_on_record)
    return {name: nearest(name, known) for name in left if name not in known}


def _declared(app: Any) -> Iterator[str]:
    for task in app.tasks.values():
        yield task.defaults.queue
    for pipeline in app.pipelines.values():
        with suppress(Exception):  # the function of a pipeline may raise anything
            for node in pipeline.definition.nodes:
                yield str(node.options.job.get("queue", ""))
    for schedule in app.declared.values():
        yield str(cast("dict[str, object]", decode(schedule.options)).get("queue", ""))


def _on_record(tx: Transaction) -> set[str]:
    counted = {
        row.queue
        for row in queue_counts(tx)
        if any((row.available, row.limited, row.scheduled, row.running, row.failed))
    }
    return counted | {str(queue) for (queue,) in tx.rows(WORKED_OFF)}
