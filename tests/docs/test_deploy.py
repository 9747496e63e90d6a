"""The board, the alert rules and the scalers in `deploy/` name nothing that is not there."""

import json
import re
from pathlib import Path

import pytest

from penstock.operate.overview import Overview, gauges
from penstock.telemetry.metrics import COUNTERS, HISTOGRAMS, PREFIX

DEPLOY = Path(__file__).parents[2] / "deploy"
MONITOR = DEPLOY.parent / "penstock/cli/worker_monitor.py"


def known() -> set[str]:
    histograms = {f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "sum", "count")}
    counted = {f"{PREFIX}{name}" for name in COUNTERS.keys() | histograms}
    told = gauges(Overview([], {}, {}, 10)) + MONITOR.read_text()
    return counted | set(re.findall(r"# TYPE (\w+) gauge", told)) | set(re.findall(r'Family\("(\w+)"', told))


def named(text: str) -> set[str]:
    return set(re.findall(r"\bpenstock_[a-z_]+", text))


def test_the_alert_rules_name_metrics_that_exist() -> None:
    text = (DEPLOY / "prometheus/alerts.yml").read_text()
    assert named(text) - known() == set()
    assert len(re.findall(r"- alert: Penstock\w+", text)) == text.count("expr:") == text.count("summary:")


def test_the_board_names_metrics_that_exist_and_shows_most_of_them() -> None:
    board = json.loads((DEPLOY / "grafana/penstock.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert named(" ".join(expressions)) - known() == set()
    assert {f"{PREFIX}{name}" for name in COUNTERS} - named(" ".join(expressions)) == set()
    assert all(expression.count("(") == expression.count(")") for expression in expressions)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.parametrize("name", ["postgresql", "mysql"])
def test_a_scaler_has_one_query(name: str) -> None:
    text = (DEPLOY / f"keda/{name}.yaml").read_text()
    assert text.count("query: >-") == 1
