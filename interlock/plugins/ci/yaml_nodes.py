"""A YAML file as a tree of texts, lists and maps, each with its line and column, and all that is wrong with it.

Only what a config needs is read: a text is what is written, so `on`, `yes` and `3.10` stay what they are, and whoever
reads a key says which kind of value it takes. Anchors, aliases, tags, a second document and keys that are no text are
refused. A key that is there twice is refused. The parser is PyYAML's, event by event, so nothing is built of what is
too deep.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from interlock.kernel.errors import InterlockError

BYTES_MAX = 1 << 20
DEPTH_MAX = 20  # maps and lists in each other
PROBLEMS_MAX = 100
SHOWN_MAX = 60  # characters of a value in a message
TextPath = tuple[str | int, ...]  # keys and places in lists, from the top


class ConfigError(InterlockError):
    """A config that cannot be used; the text is one line for each problem."""


@dataclass(frozen=True, kw_only=True)
class YamlNode:
    """A place in a file; line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True, kw_only=True)
class YamlText(YamlNode):
    """A text as it is written; plain means that it is not in quotes and no block."""

    text: str
    plain: bool = True

    @property
    def absent(self) -> bool:
        """Whether YAML takes it for no value."""
        return self.plain and self.text in ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, kw_only=True)
class YamlList(YamlNode):
    """A list, with its place."""

    items: list[YamlNode]


@dataclass(frozen=True, kw_only=True)
class YamlMap(YamlNode):
    """A mapping, with its place; keys are texts."""

    pairs: list[tuple[YamlText, YamlNode]]


@dataclass
class Problems:
    """What is wrong with a file, and where its values stand."""

    file: str
    entries: dict[tuple[int, int, str], None] = field(default_factory=dict)
    places: dict[TextPath, YamlNode] = field(default_factory=dict)

    def refuse(self, node: YamlNode, wrong: str, allowed: str) -> None:
        """Adds a problem: what is wrong with a node, and what is allowed there."""
        self.entries[(node.line, node.column, f"{wrong}; {allowed}")] = None

    def refuse_at(self, path: TextPath, wrong: str, allowed: str) -> None:
        """Does the same for the node of a path, or the nearest one above it that is written."""
        while path not in self.places and path:
            path = path[:-1]
        self.refuse(self.places.get(path, YamlNode(line=1, column=1)), wrong, allowed)

    def describe(self) -> list[str]:
        """Returns the problems as `file:line:column: what was wrong; what is allowed`, in the order of the file."""
        lines = [f"{self.file}:{line}:{column}: {words}" for line, column, words in sorted(self.entries)]
        more = len(lines) - PROBLEMS_MAX
        return lines if more <= 0 else [*lines[:PROBLEMS_MAX], f"{self.file}: and {more} more problems"]

    def check(self) -> None:
        """Raises ConfigError if there is a problem."""
        if self.entries:
            raise ConfigError("\n".join(self.describe()))


def quote(text: str) -> str:
    """Returns a value as a message shows it: in quotes, and cut if it is long."""
    return repr(text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…")


def guess(name: str, known: Iterable[str]) -> str:
    """Returns how a message about an unknown name goes on: which one is most like it; empty if none is."""
    near = get_close_matches(name[:200], list(known), 1)
    return f" (did you mean '{near[0]}'?)" if near else ""


def parse_yaml(data: bytes, problems: Problems) -> YamlNode | None:
    """Returns the tree of a file; None if it is no YAML, or has what is never allowed: then problems say so."""
    start = YamlNode(line=1, column=1)
    if len(data) > BYTES_MAX:
        problems.refuse(start, f"the file has more than {BYTES_MAX:,} bytes", "allowed are no more")
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        problems.refuse(find_text_place(data[: error.start].decode()), "this is no UTF-8", "allowed is text in UTF-8")
        return None
    yaml = load_yaml()
    try:
        return compose(yaml, yaml.parse(text, Loader=choose_loader(yaml)), problems)
    except yaml.reader.ReaderError as error:
        at = find_text_place(text[: error.position])
        problems.refuse(at, f"the character {chr(error.character)!r}", "allowed are letters, signs and line ends")
    except yaml.MarkedYAMLError as error:
        refuse_syntax(text, error, problems)
    return None


def load_yaml() -> Any:
    """Returns PyYAML.

    Raises:
        InterlockError: it is not installed.
    """
    try:
        return import_module("yaml")
    except ModuleNotFoundError:
        raise InterlockError(
            "a config is read by PyYAML, which is not installed: pip install 'interlock[ci]'"
        ) from None


def choose_loader(yaml: Any) -> Any:
    """Returns libyaml's parser, which is 18 times faster; PyYAML's own where a system has none."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def find_text_place(before: str) -> YamlNode:
    """Returns the place that follows a text."""
    return YamlNode(line=before.count("\n") + 1, column=len(before) - before.rfind("\n"))


def refuse_syntax(text: str, error: Any, problems: Problems) -> None:
    """Adds the problem that the parser has found, in its own words, unless it is a tab."""
    mark = error.problem_mark or error.context_mark
    at = YamlNode(line=mark.line + 1, column=mark.column + 1)
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent:
        tab = YamlNode(line=at.line, column=indent.index("\t") + 1)
        problems.refuse(tab, "a tab before the first character", "allowed are spaces, two for each level")
        return
    where = f"{error.context}: " if error.context else ""
    problems.refuse(at, f"this is no YAML: {where}{error.problem}", "allowed are maps, lists and text")


class ReadingEnded(Exception):
    """What is never allowed was met, and the rest is not read."""


def compose(yaml: Any, events: Iterator[Any], problems: Problems) -> YamlNode | None:
    """Returns the tree of a stream of events; what is too deep or of a second document ends it."""
    top: YamlNode | None = None
    open_nodes: list[YamlMap | YamlList] = []
    keys: list[YamlText | None] = []  # the key that waits for its value, for each map that is open
    documents = 0
    try:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    refuse_whole(event, problems, "a second document", "allowed is a file without ---")
            if isinstance(event, yaml.CollectionEndEvent):
                open_nodes.pop()
                keys.pop()
            if not isinstance(event, yaml.NodeEvent):
                continue
            node = make_node(yaml, event, problems)
            if not open_nodes:
                top = node
            elif isinstance(parent := open_nodes[-1], YamlList):
                parent.items.append(node)
            elif (key := keys[-1]) is None:
                keys[-1] = check_key(node, event, parent, problems)
            else:
                parent.pairs.append((key, node))
                keys[-1] = None
            if isinstance(node, YamlMap | YamlList):
                if len(open_nodes) == DEPTH_MAX:
                    refuse_whole(event, problems, f"more than {DEPTH_MAX} levels", "a config has at most 8")
                open_nodes.append(node)
                keys.append(None)
    except ReadingEnded:
        return None
    drop_duplicates(top, problems)
    return top


def make_node(yaml: Any, event: Any, problems: Problems) -> YamlNode:
    """Returns the node of an event, still empty.

    Raises:
        ReadingEnded: an alias, an anchor or a tag.
    """
    if isinstance(event, yaml.AliasEvent):
        refuse_whole(event, problems, f"the alias *{event.anchor}", "write the value out")
    if event.anchor is not None:
        refuse_whole(event, problems, f"the anchor &{event.anchor}", "write the value out where it is used")
    if event.tag is not None:
        refuse_whole(event, problems, f"the tag {event.tag}", "write the value without a tag")
    line, column = event.start_mark.line + 1, event.start_mark.column + 1
    if isinstance(event, yaml.ScalarEvent):
        return YamlText(line=line, column=column, text=event.value, plain=not event.style)
    if isinstance(event, yaml.SequenceStartEvent):
        return YamlList(line=line, column=column, items=[])
    return YamlMap(line=line, column=column, pairs=[])


def refuse_whole(event: Any, problems: Problems, wrong: str, allowed: str) -> None:
    """Adds a problem, and ends the reading.

    Raises:
        ReadingEnded: always.
    """
    problems.refuse(YamlNode(line=event.start_mark.line + 1, column=event.start_mark.column + 1), wrong, allowed)
    raise ReadingEnded


def check_key(node: YamlNode, event: Any, parent: YamlMap, problems: Problems) -> YamlText:
    """Returns the key that a node is.

    Raises:
        ReadingEnded: one that is no text.
    """
    if not isinstance(node, YamlText):
        refuse_whole(event, problems, "a list or a map as a key", "allowed is text, such as steps")
    assert isinstance(node, YamlText)
    return node


def drop_duplicates(top: YamlNode | None, problems: Problems) -> None:
    """Adds a problem for each key that its map has already, and takes it out."""
    waiting = [top] if top is not None else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, YamlList):
            waiting += node.items
        elif isinstance(node, YamlMap):
            first: dict[str, YamlText] = {}
            for key, _ in node.pairs:
                if key.text in first:
                    before = first[key.text]
                    problems.refuse(
                        key, f"the key {quote(key.text)} is here twice, first in line {before.line}", "keep one of them"
                    )
                else:
                    first[key.text] = key
            node.pairs[:] = [pair for pair in node.pairs if first[pair[0].text] is pair[0]]
            waiting += [value for _, value in node.pairs]
