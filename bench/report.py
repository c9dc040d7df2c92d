"""What was measured, as a table of medians and ranges, as ratios, as JSON and as a chart."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.measures import ALL, DRAIN_1, DRAIN_2, Measure


@dataclass
class Series:
    """The values of one measure of one peer, round by round, and the cores that others used meanwhile."""

    values: dict[int, float] = field(default_factory=dict)
    others: dict[int, float] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.values.values())


Results = dict[Measure, dict[str, Series]]


@dataclass(frozen=True)
class Ratio:
    """How many times better the first is than the second: in each round in which both were measured."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.low <= 1 <= self.high:
            return f"equal ({self.low:.2f}–{self.high:.2f})"
        return f"{self.median:.2f}× ({self.low:.2f}–{self.high:.2f})"


def ratio(measure: Measure, ours: Series, theirs: Series) -> Ratio | None:
    rounds = ours.values.keys() & theirs.values.keys()
    ratios = [ours.values[each] / theirs.values[each] for each in rounds]
    if not measure.more_is_better:
        ratios = [1 / each for each in ratios]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios)) if ratios else None


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def ours_for(store: str) -> str:
    return "Interlock (SQLite)" if store == "sqlite" else "Interlock"


def rows(results: Results, stores: dict[str, str]) -> Iterable[list[str]]:
    """Measure by measure: each peer with its median and range, and Interlock as a ratio to it."""
    for measure in [*ALL, *(measure for measure in results if measure not in ALL)]:
        for title, series in results.get(measure, {}).items():
            if not series.values:
                continue
            values, ours = list(series.values.values()), ours_for(stores[title])
            mine = results[measure].get(ours)
            compared = ratio(measure, mine, series) if mine and title != ours else None
            yield [
                f"{measure.name}, {measure.unit}", title, number(series.median),
                f"{number(min(values))}–{number(max(values))}", str(compared) if compared else "",
                f"{min(series.others.values()):.1f}–{max(series.others.values()):.1f}",
            ]  # fmt: skip


HEAD = ["measure", "who", "median", "range", "Interlock is", "cores used by others"]


def table(results: Results, stores: dict[str, str]) -> str:
    """A Markdown table; it reads as well on a terminal."""
    lines = [HEAD, *rows(results, stores)]
    last = ""
    for line in lines[1:]:
        line[0], last = ("" if line[0] == last else line[0]), line[0] or last
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEAD))]
    spelled = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    return "\n".join([spelled[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *spelled[1:]])


def as_data(results: Results, about: dict[str, Any]) -> dict[str, Any]:
    measured = {
        measure.name: {
            title: {
                "median": series.median, "unit": measure.unit, "rounds": list(series.values.values()),
                "other_cores": [round(cores, 2) for cores in series.others.values()],
            }
            for title, series in peers.items()
            if series.values
        }
        for measure, peers in results.items()
    }  # fmt: skip
    return {**about, "measures": measured}


def bars(measure: Measure, peers: dict[str, Series], top: int) -> tuple[list[str], int]:
    """One group of bars, longest first, each with its range as a thin line."""
    some = sorted((item for item in peers.items() if item[1].values), key=lambda item: -item[1].median)
    most = max(max(series.values.values()) for _, series in some)
    out = [f'<text x="10" y="{top}" class="head">{measure.name}, {measure.unit}</text>']
    for title, series in some:
        top += 20
        wide, low, high = (
            400 * value / most for value in (series.median, min(series.values.values()), max(series.values.values()))
        )
        kind = "ours" if title.startswith("Interlock") else "floor" if title == "floor" else "peer"
        out += [
            f'<text x="10" y="{top + 11}">{title}</text>',
            f'<rect x="150" y="{top}" width="{wide:.1f}" height="14" class="{kind}"/>',
            f'<line x1="{150 + low:.1f}" x2="{150 + high:.1f}" y1="{top + 7}" y2="{top + 7}"/>',
            f'<text x="{160 + max(wide, high):.1f}" y="{top + 11}">{number(series.median)}</text>',
        ]
    return out, top + 44


def chart(results: Results, measures: Sequence[Measure] = (DRAIN_1, DRAIN_2)) -> str:
    """An SVG picture of a few measures."""
    parts, top = [], 24
    for measure in measures:
        if any(series.values for series in results.get(measure, {}).values()):
            more, top = bars(measure, results[measure], top)
            parts += more
    style = (
        "text{font:12px sans-serif;fill:#24292f}.head{font-weight:bold}.ours{fill:#0969da}.floor{fill:#bbb}"
        ".peer{fill:#8c959f}line{stroke:#24292f;stroke-width:1.5}rect.back{fill:#fff}"
    )
    height = top - 10
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="{height}" viewBox="0 0 640 {height}">'
    back = '<rect class="back" width="100%" height="100%"/>'
    return "\n".join([opening, f"<style>{style}</style>", back, *parts, "</svg>", ""])
