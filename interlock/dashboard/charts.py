"""Charts as SVG, rendered on the server: sparklines, stacked bars by time, bars of shares.

Pure: equal numbers, equal text. No attribute `style` is used, and no colour says anything alone: the parts of a stack
have patterns besides, each step has its numbers as a hint, and pages have a table of them.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT = 600, 160  # of a chart, in its own units; pages stretch it
SPARK_WIDTH, SPARK_HEIGHT = 120, 40
BAR_WIDTH = 96
TICKS = 5  # instants below a chart
DAY = timedelta(days=1)
# What is drawn over the colour of a part: nothing, or lines by which it is known without colour.
PATTERNS = {
    "failure": "M0 6L6 0M-1 1L1 -1M5 7L7 5",
    "cancelled": "M0 3H6",
    "dead": "M0 6L6 0M0 0L6 6",
}


class Part(NamedTuple):
    """One part of a stack: the category that it is coloured as, its name, and its number in each step."""

    category: str
    name: str
    values: Sequence[int]


def draw_spark(values: Sequence[float], name: str) -> Markup:
    """Returns a small line of how a number went, the newest at the right."""
    most = max(values, default=0)
    apart = SPARK_WIDTH / max(len(values) - 1, 1)
    heights = [SPARK_HEIGHT - 2 - (SPARK_HEIGHT - 4) * value / most if most else SPARK_HEIGHT - 2 for value in values]
    line = "".join(f"{'L' if place else 'M'}{place * apart:.1f} {height:.1f}" for place, height in enumerate(heights))
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" preserveAspectRatio="none" role="img" aria-label="{2}: {3}">'
        '<path class="area" d="{4}L{0} {1}L0 {1}z"/><path class="line" d="{4}"/></svg>'
    ).format(SPARK_WIDTH, SPARK_HEIGHT, name, describe(values), line or f"M0 {SPARK_HEIGHT}")


def describe(values: Sequence[float]) -> str:
    """Returns in words how a number went."""
    if not values:
        return "nothing is known"
    return f"from {values[0]:,} to {values[-1]:,}, at least {min(values):,} and at most {max(values):,}"


def draw_stack(parts: Sequence[Part], since: datetime, step: timedelta, name: str) -> Markup:
    """Returns bars by time, each a stack of its parts."""
    steps = max((len(part.values) for part in parts), default=0)
    sums = [sum(part.values[place] for part in parts) for place in range(steps)]
    most = find_top(max(sums, default=0))
    wide = WIDTH / max(steps, 1)
    drawn, below = Markup(""), [0.0] * steps
    for part in parts:
        shape, below = draw_part(part.values, below, wide, most)
        if shape:
            drawn += Markup('<path class="part s-{}" d="{}"/>').format(part.category, shape)
            if part.category in PATTERNS:
                drawn += Markup('<path fill="url(#over-{})" d="{}"/>').format(part.category, shape)
    hints = Markup("").join(
        Markup('<rect class="hint" x="{:.1f}" width="{:.1f}" height="{}"><title>{}</title></rect>').format(
            place * wide, wide, HEIGHT, describe_step(parts, place, since + place * step)
        )
        for place in range(steps)
        if sums[place]
    )
    grid = Markup("").join(Markup('<path class="grid" d="M0 {}H{}"/>').format(HEIGHT * n // 4, WIDTH) for n in range(4))
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}: {} in all, at '
        'most {} in a step">{}{}{}{}</svg>'
    ).format(WIDTH, HEIGHT, name, sum(sums), max(sums, default=0), draw_patterns(), grid, drawn, hints)


def draw_part(
    values: Sequence[int], below: Sequence[float], wide: float, most: int
) -> tuple[str, list[float]]:  # fmt: skip
    """Returns the bars of one part as a path, and how high the stacks are with it."""
    shape, tops = [], list(below)
    gap = min(1.0, wide / 5)
    for place, value in enumerate(values):
        if value:
            high = HEIGHT * value / most
            low = HEIGHT - below[place]
            shape.append(f"M{place * wide + gap / 2:.1f} {low:.1f}h{wide - gap:.1f}v{-high:.1f}h{gap - wide:.1f}z")
            tops[place] += high
    return "".join(shape), tops


def draw_patterns() -> Markup:
    """Draws the patterns by which outcomes are told apart without colours."""
    return Markup("<defs>{}</defs>").format(
        Markup("").join(
            Markup(
                '<pattern id="over-{}" width="6" height="6" patternUnits="userSpaceOnUse">'
                '<path class="over" d="{}"/></pattern>'
            ).format(category, shape)
            for category, shape in PATTERNS.items()
        )
    )


def find_top(most: int) -> int:
    """Returns a round number that the scale ends at: 1, 2 or 5 with zeros, or what is between, but never less."""
    top = 1
    while top < most:
        for factor in (2, 4, 5, 8, 10):
            if top * factor >= most:
                return top * factor
        top *= 10
    return top


def describe_step(parts: Sequence[Part], place: int, at: datetime) -> str:
    """Describes one step of a chart in words."""
    counts = [f"{part.values[place]:,} {part.name}" for part in parts if part.values[place]]
    return f"{at:%Y-%m-%d %H:%M} UTC: {', '.join(counts) or 'none'}"


def list_ticks(since: datetime, step: timedelta, steps: int) -> list[str]:
    """Returns the instants below a chart, from its left to its right end."""
    whole = step * steps
    shape = "%b %d, %H:%M" if whole > DAY else "%H:%M"
    return [f"{since + whole * place / (TICKS - 1):{shape}}" for place in range(TICKS)]


def list_rows(parts: Sequence[Part], since: datetime, step: timedelta) -> Iterator[tuple[str, list[int]]]:
    """Yields the numbers of each step in which there is any, the newest first."""
    for place in reversed(range(max((len(part.values) for part in parts), default=0))):
        numbers = [part.values[place] for part in parts]
        if any(numbers):
            yield f"{since + place * step:%Y-%m-%d %H:%M}", numbers


def draw_share(share: float, category: str = "") -> Markup:
    """Returns a small bar that is full to a share from 0 to 1; whoever uses it has the number beside it."""
    return Markup(
        '<svg class="bar{}" viewBox="0 0 {w} 8" aria-hidden="true"><rect class="bg" width="{w}" height="8" rx="4"/>'
        '<rect class="fg" width="{:.0f}" height="8" rx="4"/></svg>'
    ).format(f" s-{category}" if category else "", BAR_WIDTH * min(max(share, 0.0), 1.0), w=BAR_WIDTH)
