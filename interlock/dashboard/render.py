"""Render templates: everything is escaped, times are relative with the exact time as a hint, JSON is coloured."""

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from interlock import __version__
from interlock.client.durations import format_brief, format_rounded, format_time

HERE = Path(__file__).parent
LINE_MAX = 240  # characters of a value that is shown on one line


@cache
def get_environment() -> Environment:
    """Returns the templates, which escape everything."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(
        ago=format_ago,
        exact=escape_exactly,
        instant=format_time,
        json=format_json,
        line=format_line,
        printable=make_printable,
        took=format_took,
    )
    environment.globals.update(release=__version__, with_query=with_query)
    return environment


def add_templates(folder: Path) -> None:
    """Makes the templates of a plugin known; names of ours stay ours."""
    loader = get_environment().loader
    assert isinstance(loader, FileSystemLoader)
    if str(folder) not in loader.searchpath:
        loader.searchpath.append(str(folder))


def render(template: str, **shown: Any) -> str:
    """Returns a page."""
    return get_environment().get_template(template).render(**shown)


def make_printable(value: Any) -> str:
    """Returns text without what would turn or hide the text around it: control and direction marks are shown."""
    text = "" if value is None else str(value)
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def escape_exactly(value: str) -> Markup:
    """Returns text for a hidden field, which comes back as it is; marks that would turn the page's text are numbers."""
    return Markup("".join(char if char.isprintable() else f"&#{ord(char)};" for char in str(escape(value))))


def format_ago(text: str | None) -> Markup:
    """Returns an instant as how long ago it was, or in how long it will be, with the instant as a hint."""
    if not text:
        return Markup("–")
    instant = datetime.fromisoformat(text)
    us = round((datetime.now(UTC) - instant).total_seconds() * 1_000_000)
    length = format_rounded(abs(us)).split(" ")[0]  # the largest part is enough; the hint has the rest
    words = "now" if abs(us) < 1_000_000 else f"{length} ago" if us > 0 else f"in {length}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(text, text, words)


def format_took(ms: int | None) -> str:
    """Returns a length of time that is given in milliseconds."""
    return "–" if ms is None else format_brief(ms * 1_000)


def format_json(value: Any) -> Markup:
    """Returns a value as coloured JSON."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return Markup("").join(colour(line) for line in make_printable(text).splitlines(keepends=True))


def format_line(value: Any) -> str:
    """Returns a value as JSON on one line; of a long one the beginning."""
    text = make_printable(msgspec.json.encode(value).decode())
    return text if len(text) <= LINE_MAX else f"{text[:LINE_MAX]}…"


def colour(line: str) -> Markup:
    """Returns a line of formatted JSON with its key and value marked by what they are."""
    body = line.lstrip(" ")
    indent = line[: len(line) - len(body)]
    key = Markup("")
    if body.startswith('"'):
        end = find_end(body)
        if body[end : end + 1] == ":":
            key, body = Markup('<span class="k">{}</span>: ').format(body[:end]), body[end + 2 :]
    value = body.rstrip("\n").rstrip(",")
    rest = body[len(value) :]
    kind = "s" if value.startswith('"') else "b" if value in ("true", "false", "null") else "n"
    if value in ("{", "}", "[", "]", "{}", "[]", ""):
        return Markup(indent) + key + escape(value + rest)
    return Markup(indent) + key + Markup('<span class="{}">{}</span>').format(kind, value) + escape(rest)


def find_end(text: str) -> int:
    """Returns where the JSON string at the beginning of a text ends."""
    place = 1
    while place < len(text) and text[place] != '"':
        place += 2 if text[place] == "\\" else 1
    return place + 1


def with_query(pairs: list[tuple[str, str]], **changes: str | None) -> str:
    """Returns the query of a page with some fields changed, or taken away."""
    kept = [(name, value) for name, value in pairs if name not in changes]
    kept += [(name, value) for name, value in changes.items() if value is not None]
    return f"?{urlencode(kept)}" if kept else "?"
