"""Medians and spreads, as a table for people and JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.workloads.base import EVERYBODY, Figures, Workload


@dataclass(slots=True)
class Results:
    """What each round of each workload gave for each system."""

    about: dict[str, Any]
    rounds: dict[str, dict[str, list[Figures]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def add(self, workload: str, system: str, figures: Figures) -> None:
        self.rounds[workload][system].append(figures)

    def values(self, workload: str, system: str, figure: str) -> list[float]:
        return [one[figure] for one in self.rounds[workload][system] if figure in one]

    def save(self, file: Path) -> None:
        file.write_text(json.dumps({"about": self.about, "rounds": self.rounds}, indent=1) + "\n")

    def table(self, workloads: list[Workload], systems: list[str]) -> Table:
        """One row per figure; the spread over the rounds after the median."""
        table = Table(title="median (least to most) over the rounds", title_justify="left")
        table.add_column("workload")
        table.add_column("unit")
        for system in systems:
            table.add_column(system, justify="right")
        for workload in workloads:
            for number, (figure, unit) in enumerate(workload.rows.items()):
                cells = [self.cell(workload, system, figure) for system in systems]
                table.add_row(workload.title if number == 0 else "", unit, *cells)
        return table

    def cell(self, workload: Workload, system: str, figure: str) -> str:
        values = self.values(workload.name, system, figure)
        if not values:
            rounds = self.rounds[workload.name][system]
            return "failed" if rounds and not any(one.keys() - {"load"} for one in rounds) else "-"
        if len(values) == 1 or min(values) == max(values):
            return shown(values[0])
        return f"{shown(median(values))} ({shown(min(values))} .. {shown(max(values))})"

    def markdown(self, workloads: list[Workload], systems: list[str]) -> str:
        lines = [f"| workload | unit | {' | '.join(systems)} |", "|---|---|" + "---:|" * len(systems)]
        for workload in workloads:
            for number, (figure, unit) in enumerate(workload.rows.items()):
                cells = " | ".join(self.cell(workload, system, figure) for system in systems)
                lines.append(f"| {workload.title if number == 0 else ''} | {unit} | {cells} |")
        return "\n".join(lines)


def load(file: Path) -> Results:
    """Results of an earlier run, to print again."""
    read = json.loads(file.read_text())
    results = Results(read["about"])
    for workload, systems in read["rounds"].items():
        for system, rounds in systems.items():
            results.rounds[workload][system] = rounds
    return results


def shown(value: float) -> str:
    if value != value:
        return "?"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"


def machine() -> dict[str, Any]:
    """The class of machine, no names."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def order(systems: set[str]) -> list[str]:
    """As the table has them; of several servers, the name of the system comes before that of the server."""
    return sorted(systems, key=lambda name: (EVERYBODY.index(name.split()[0]), name))


console = Console(width=220 if not Console().is_terminal else None)
