"""The display of the demo: a live picture on a terminal, a line per event elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.commands.watch import picture
from penstock.cli.exit_codes import out
from penstock.operate.processes import ProcessRow
from penstock.pipelines.model.graph_view import Graph


class Display:
    """Shows the demo. Printed lines stay; the picture below them changes."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.live = Live(console=out, refresh_per_second=12, transient=True) if out.is_terminal else None

    def __enter__(self) -> Display:
        if self.live is not None:
            self.live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.__exit__(None, None, None)

    def say(self, words: str, style: str = "") -> None:
        """Print an event, with the time since the beginning."""
        line = Text(f"{time.monotonic() - self.began:5.1f} s  ", style="dim")
        line.append(words, style=style)
        out.print(line)

    def show(self, graph: Graph, processes: Sequence[ProcessRow]) -> None:
        """Update the picture: the progress of the run, and the workers."""
        if self.live is not None:
            self.live.update(Group(picture(graph), Text(), _workers(processes)))


def _workers(processes: Sequence[ProcessRow]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("process", "pid", "holds"):
        table.add_column(name)
    for process in processes:
        role = "  worker" if process.supervisor_id else process.role
        table.add_row(role, str(process.pid), "▪" * process.holding)
    return table
