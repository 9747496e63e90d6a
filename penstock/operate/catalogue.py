"""Which pipelines there are in a database: their newest definition, how many there were, and runs under way."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.database.transaction import Transaction
from penstock.pipelines.definition import Definition

DEFINITIONS = "SELECT name, text FROM {definitions} ORDER BY created_at, hash"
UNDER_WAY = "SELECT pipeline, COUNT(*) FROM {runs} WHERE ended_at IS NULL GROUP BY pipeline"


@dataclass(frozen=True, slots=True)
class Entry:
    """One pipeline. `versions`: how many definitions of it have had runs."""

    pipeline: str
    description: str = ""
    parameters: tuple[str, ...] = ()
    steps: int = 0
    definition: str = ""
    versions: int = 0
    under_way: int = 0

    def now(self, definition: Definition, description: str = "") -> Entry:
        """The same with this definition."""
        steps = sum(node.kind.is_step for node in definition.nodes)
        return replace(
            self,
            description=description,
            parameters=definition.params,
            steps=steps,
            definition=definition.hash,
        )


def stored(tx: Transaction) -> dict[str, Entry]:
    """By name."""
    found: dict[str, Entry] = {}
    for name, text in tx.rows(DEFINITIONS):
        before = found.get(str(name)) or Entry(str(name))
        found[str(name)] = replace(before, versions=before.versions + 1).now(Definition.from_text(str(text)))
    for name, count in tx.rows(UNDER_WAY):
        if name in found:
            found[str(name)] = replace(found[str(name)], under_way=int(count))
    return found
