"""A picture of the dashboard with the answers of a Prometheus, for the documentation.

It shows what the queries return, in the places of the panels. Grafana draws them in its own way.
"""

from __future__ import annotations

import html
import math
from typing import Any, NamedTuple

# Width of a column, height of a row of the grid and the space between panels, in pixels.
COLUMN, ROW, GAP = 45, 30, 6
HEAD, FOOT = 34, 26
COLORS = ["#73bf69", "#5794f2", "#b877d9", "#fade2a"]
LIMIT_COLOR = "#f2495c"
STYLE = (
    "text{font:12px sans-serif;fill:#ccccdc}.title{font-size:13px;font-weight:bold}"
    ".value{font-size:26px;text-anchor:middle}.axis{fill:#8e8e99;font-size:10px}"
)
NOTE = "Drawn by integrations/grafana/check.py from the answers of Prometheus, without Grafana."
KILO, KIBI, MINUTE = 1000, 1024, 60
# A longer gap in the points is a gap in the line.
MAX_GAP_SECONDS = 5


class Series(NamedTuple):
    """One line: what its labels and its query are, and its points as seconds and values."""

    legend: str
    is_limit: bool
    points: list[tuple[float, float]]


class Area(NamedTuple):
    """Where a panel draws its lines."""

    left: int
    top: int
    right: int
    bottom: int

    def x(self, share: float) -> float:
        """Return where a share of the time is."""
        return self.left + share * (self.right - self.left)

    def y(self, share: float) -> float:
        """Return where a share of the highest value is."""
        return self.bottom - share * (self.bottom - self.top)


def picture(
    shown: dict[str, Any], answers: dict[str, list[dict[str, Any]]], span: tuple[float, float]
) -> str:
    """Return the dashboard as SVG. The answers are those of the queries, by their expression."""
    panels = shown["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    width, height = 24 * COLUMN + GAP, HEAD + rows * ROW + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
        f'<style>{STYLE}</style><rect width="{width}" height="{height}" fill="#111217"/>',
        f'<text class="title" x="{GAP}" y="22">{html.escape(shown["title"])}</text>',
    ]
    parts += [drawn(panel, lines(panel, answers, span[0]), span[1] - span[0]) for panel in panels]
    parts.append(f'<text class="axis" x="{GAP}" y="{height - 10}">{NOTE}</text></svg>')
    return "\n".join(parts) + "\n"


def lines(panel: dict[str, Any], answers: dict[str, list[dict[str, Any]]], began: float) -> list[Series]:
    """Return the lines of a panel."""
    found = []
    for target in panel["targets"]:
        for answer in answers[target["expr"]]:
            legend = target["legendFormat"]
            for label, text in {**answer["metric"], "instance": "", "run": ""}.items():
                legend = legend.replace(f"{{{{{label}}}}}", text)
            points = [(at - began, float(value)) for at, value in answer["values"]]
            found.append(Series(legend.strip(), target["refId"] == "B", points))
    return found


def drawn(panel: dict[str, Any], series: list[Series], seconds: float) -> str:
    """Return one panel in its place."""
    place = panel["gridPos"]
    x, y = place["x"] * COLUMN + GAP, HEAD + place["y"] * ROW
    width, height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
    inside = (
        value(panel, series, width, height)
        if panel["type"] == "stat"
        else graph(panel, series, width, height, seconds)
    )
    return (
        f'<g transform="translate({x},{y})"><rect width="{width}" height="{height}" rx="3" fill="#181b1f"'
        f' stroke="#2c3235"/><text class="title" x="8" y="18">{html.escape(panel["title"])}</text>'
        f"{inside}</g>"
    )


def value(panel: dict[str, Any], series: list[Series], width: int, height: int) -> str:
    """Return the one value of a panel, as its calculation and its mappings make it."""
    values = [value for line in series for _, value in line.points]
    if not values:
        return ""
    is_minimum = panel["options"]["reduceOptions"]["calcs"] == ["min"]
    shown = min(values) if is_minimum else values[-1]
    text = formatted(shown, panel["fieldConfig"]["defaults"]["unit"])
    for mapping in panel["fieldConfig"]["defaults"].get("mappings", []):
        text = mapping["options"].get(text, {"text": text})["text"]
    return f'<text class="value" x="{width / 2:.0f}" y="{height * 0.65:.0f}">{html.escape(text)}</text>'


def graph(panel: dict[str, Any], series: list[Series], width: int, height: int, seconds: float) -> str:
    """Return the lines of a panel with their axes and names."""
    area = Area(70, 30, width - 12, height - 44)
    defaults = panel["fieldConfig"]["defaults"]
    highest = (
        defaults.get("max") or max((value for line in series for _, value in line.points), default=1) or 1
    )
    is_log = "scaleDistribution" in defaults["custom"]
    parts = []
    for share in (0, 0.5, 1):
        y = area.y(share)
        parts.append(f'<path d="M{area.left} {y:.0f}H{area.right}" stroke="#2c3235"/>')
        label = formatted(highest**share if is_log else share * highest, defaults["unit"])
        parts.append(
            f'<text class="axis" x="{area.left - 6}" y="{y + 4:.0f}" text-anchor="end">{label}</text>'
        )
        label, anchor = formatted(share * seconds, "s"), ("start", "middle", "end")[int(2 * share)]
        at = f'x="{area.x(share):.0f}" y="{area.bottom + 15}" text-anchor="{anchor}"'
        parts.append(f'<text class="axis" {at}>{label}</text>')
    for index, line in enumerate(series):
        color = LIMIT_COLOR if line.is_limit else COLORS[index % len(COLORS)]
        dash = ' stroke-dasharray="8 6"' if line.is_limit else ""
        steps, before = [], -math.inf
        for second, value in line.points:
            share = math.log(max(value, 1)) / math.log(max(highest, 2)) if is_log else value / highest
            move = "L" if second - before < MAX_GAP_SECONDS else "M"
            steps.append(f"{move}{area.x(second / seconds):.0f} {area.y(min(share, 1)):.0f}")
            before = second
        parts.append(f'<path d="{"".join(steps)}" fill="none" stroke="{color}"{dash}/>')
        name = html.escape(line.legend or panel["title"])
        parts.append(
            f'<text x="{area.left + 160 * index}" y="{height - 10}" style="fill:{color}">{name}</text>'
        )
    return "".join(parts)


def formatted(value: float, unit: str) -> str:
    """Return a value with its unit."""
    if unit == "percentunit":
        return f"{100 * value:.0f} %"
    if unit == "s":
        return f"{value:.0f} s" if value < 2 * MINUTE else f"{value / MINUTE:.1f} min"
    if unit == "bytes":
        names = iter(["B", "KiB", "MiB", "GiB", "TiB"])
        name = next(names)
        while value >= KIBI and name != "TiB":
            value, name = value / KIBI, next(names)
        return f"{value:.3g} {name}" if value < KILO else f"{value:.0f} {name}"
    return f"{value:.3g}" if value < KILO else f"{value:.0f}"
