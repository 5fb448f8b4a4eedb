"""What brimful.json asks Prometheus for, and whether Grafana can show it."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DASHBOARD = Path(__file__).with_name("brimful.json")
SOURCE = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
COLUMNS = 24
METRIC = re.compile(r"\bbrimful_[a-z_]+\b")


def read() -> dict[str, Any]:
    """Return the dashboard."""
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return dashboard


def queries(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the name and the expression of every query of a panel or an annotation."""
    found = [
        (f"{panel['title']} {target['refId']}", target["expr"])
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]
    return found + [(f"annotation {each['name']}", each["expr"]) for each in dashboard["annotations"]["list"]]


def exported_metrics() -> set[str]:
    """Return the metrics that `brimful run --metrics-file` writes, as its source names them."""
    source = ROOT / "crates/brimful-supervise/src/metrics.rs"
    return set(re.findall(r'"(brimful_[a-z_]+)"', source.read_text(encoding="utf-8")))


def problems(dashboard: dict[str, Any]) -> list[str]:
    """Return what Grafana would show wrongly or not at all."""
    panels = dashboard["panels"]
    found = [f"panel id {panel['id']} is used twice" for panel in repeated(panels)]
    found += [
        f"{one['title']} overlaps {other['title']}"
        for one, other in combinations(panels, 2)
        if overlap(one["gridPos"], other["gridPos"])
    ]
    found += [
        f"{panel['title']} is wider than the grid"
        for panel in panels
        if panel["gridPos"]["x"] + panel["gridPos"]["w"] > COLUMNS
    ]
    variables = [each for each in dashboard["templating"]["list"] if each["type"] == "query"]
    targets = [target for panel in panels for target in panel["targets"]]
    found += [
        f"{each.get('title') or each.get('name') or each.get('expr')} does not use the data source variable"
        for each in [*panels, *targets, *variables, *dashboard["annotations"]["list"]]
        if each["datasource"] != SOURCE
    ]
    used = {name for _, query in queries(dashboard) for name in METRIC.findall(query)}
    exported = exported_metrics()
    found += [f"brimful run writes no metric {name}" for name in sorted(used - exported)]
    found += [f"no panel shows the metric {name}" for name in sorted(exported - used)]
    return found


def repeated(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the panels whose id an earlier panel has."""
    ids = [panel["id"] for panel in panels]
    return [panel for at, panel in enumerate(panels) if panel["id"] in ids[:at]]


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    """Return true if two places of the grid have a cell in common."""
    return all(
        one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
        for start, size in (("x", "w"), ("y", "h"))
    )
