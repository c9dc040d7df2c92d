"""Reads states and edges out of the five source documents, so that the tests compare with their text."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent.parent.parent / "docs" / "documents"
Edges = set[tuple[str, str]]


def text(number: str) -> str:
    return next(FOLDER.glob(f"{number}-*.md")).read_text(encoding="utf-8")


def part(number: str, start: str, end: str = "\n## ") -> str:
    """A document from the heading `start` to the next heading `end`."""
    after = text(number).split(start, 1)[1]
    return after.split(end, 1)[0]


def mermaid(source: str) -> dict[tuple[str, str], str]:
    """The edges of the first diagram in `source`, with their labels; births and ends left out."""
    block = source.split("```mermaid", 1)[1].split("```", 1)[0]
    found = re.findall(r"^\s*(\w+) --> (\w+)(?::\s*(\w+))?", block, re.MULTILINE)
    return {(a, b): label for a, b, label in found}


def table(source: str) -> Edges:
    """The edges of a table `State | Allowed Transitions`."""
    edges: Edges = set()
    for state, targets in re.findall(r"^\| `(\w+)` \| (.+) \|$", source, re.MULTILINE):
        edges |= {(state, target) for target in re.findall(r"`(\w+)`", targets)}
    return edges


def from_to(source: str) -> Edges:
    """The edges of document 001's tables `From | To | …`, several states to a cell."""
    edges: Edges = set()
    for left, right in re.findall(r"^\| (`[^|]+) \| (`[^|]+) \|", source, re.MULTILINE):
        edges |= {(a, b) for a in re.findall(r"`(\w+)`", left) for b in re.findall(r"`(\w+)`", right)}
    return edges


def arrows(source: str) -> Edges:
    """The edges of document 002's lists, `queued | assigned → failed | cancelled`."""
    edges: Edges = set()
    for line in source.splitlines():
        if found := re.match(r"- ([\w |/]+) → ([\w |]+)", line):
            left, right = (re.findall(r"[a-z_]+", side.split("(")[0]) for side in found.groups())
            edges |= {(a, b) for a in left for b in right}
    return edges


def numbered(source: str) -> dict[int, Edges]:
    """The edges of document 004's numbered lists, by number."""
    edges: dict[int, Edges] = {}
    pattern = r"^(?:(\d+)\. |- )?`([A-Z_|]+) -> ([A-Z_|]+)`"
    count = 0
    for number, left, right in re.findall(pattern, source, re.MULTILINE):
        count = int(number) if number else count + 1
        edges[count] = {(a, b) for a in left.split("|") for b in right.split("|")}
    return edges


def bullets(source: str) -> list[str]:
    """The names that a list of states defines, in order."""
    return re.findall(r"^- `(\w+)`(?: —|$)", source, re.MULTILINE)
