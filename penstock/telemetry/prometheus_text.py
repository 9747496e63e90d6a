"""Numbers in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name, kind, meaning, and its values by labels. A sample may have a suffix, such as _sum."""

    name: str
    kind: str
    meaning: str
    samples: Iterable[tuple[str, Labels, float]]


def labelled(labels: Mapping[str, object]) -> Labels:
    """Labels in a fixed order, so that equal ones are equal."""
    return tuple(sorted((name, str(value)) for name, value in labels.items()))


def expose(families: Iterable[Family]) -> str:
    """All metrics as text."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {family.meaning}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += [_line(f"{family.name}{suffix}", labels, value) for suffix, labels, value in family.samples]
    return "\n".join(lines) + "\n" if lines else ""


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    number = f"{value:.0f}" if float(value).is_integer() else repr(float(value))
    return f"{name}{{{inside}}} {number}" if inside else f"{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
