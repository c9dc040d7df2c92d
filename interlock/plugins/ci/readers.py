"""Readers of values: each knows one kind of value, reads a node as such, and says what is allowed there.

A reader returns None for a value that it refuses, after it has added a problem, and a list or map without what was
refused in it: so one pass over a file finds all that is wrong. `words` is the same kind in the reference.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cache
from typing import Any, get_type_hints

import msgspec

from interlock.kernel.durations import ALLOWED, format_us, microseconds
from interlock.plugins.ci.yaml_nodes import Problems, TextPath, YamlList, YamlMap, YamlNode, YamlText, guess, quote

TEXT_MAX = 65_536  # characters
YAML_BOOLEANS = ("y", "yes", "n", "no", "on", "off", "true", "false")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class ValueReader(ABC):
    """What all readers have in common."""

    words = "a value"

    @abstractmethod
    def read(self, node: YamlNode, path: TextPath, problems: Problems) -> Any:
        """Returns the value of a node; None if it is refused."""

    def refuse(self, node: YamlNode, problems: Problems) -> None:
        """Adds the problem that a node is not of this kind."""
        problems.refuse(node, describe_node(node), f"allowed is {self.words}")


class ConfigKey(msgspec.Struct, frozen=True):
    """A key of a map: how its value is read, what it is for, and whether it must be there."""

    reader: ValueReader
    about: str
    required: bool = False


def describe_node(node: YamlNode) -> str:
    """Returns what a node is, as the first half of a message."""
    if isinstance(node, YamlList):
        return "this is a list"
    if isinstance(node, YamlMap):
        return "this is a map"
    assert isinstance(node, YamlText)
    return "there is no value" if node.absent else f"{quote(node.text)} is not allowed here"


class TextReader(ValueReader):
    """A text, by a pattern if it has one."""

    def __init__(self, words: str, pattern: str | None = None, longest: int = TEXT_MAX) -> None:
        self.words, self.longest = words, longest
        self.pattern = re.compile(pattern, re.DOTALL) if pattern else None

    def read(self, node: YamlNode, path: TextPath, problems: Problems) -> str | None:
        if not isinstance(node, YamlText) or node.absent:
            self.refuse(node, problems)
            return None
        if len(node.text) > self.longest:
            problems.refuse(node, f"this text has {len(node.text):,} characters", f"allowed are {self.longest:,}")
            return None
        if CONTROL.search(node.text) or (self.pattern is not None and not self.pattern.fullmatch(node.text)):
            self.refuse(node, problems)
            return None
        return node.text


class GlobReader(TextReader):
    """A glob below the root of the repository."""

    def __init__(self) -> None:
        super().__init__("a path below the root with *, ? and **, such as src/**/*.py", longest=500)

    def read(self, node: YamlNode, path: TextPath, problems: Problems) -> str | None:
        text = super().read(node, path, problems)
        if text is None:
            return None
        segments = text.split("/")
        if text.startswith("!") or re.search(r"[\[\]{}\\\n]", text):
            problems.refuse(node, f"the glob {quote(text)} has a sign that is not known", f"allowed is {self.words}")
        elif text.endswith("/"):
            problems.refuse(node, f"the glob {quote(text)} ends with /", f"write {quote(text + '**')} for all below it")
        elif not text or "" in segments or "." in segments or ".." in segments:
            problems.refuse(node, f"the glob {quote(text)} leaves the repository", f"allowed is {self.words}")
        elif any("**" in segment and segment != "**" for segment in segments):
            problems.refuse(
                node, f"** is a part of a name in the glob {quote(text)}", "write ** alone, as in src/**/*.py"
            )
        else:
            return text
        return None


class FlagReader(ValueReader):
    """true or false."""

    words = "true or false"

    def read(self, node: YamlNode, path: TextPath, problems: Problems) -> bool | None:
        if isinstance(node, YamlText) and node.plain and node.text in ("true", "false"):
            return node.text == "true"
        if isinstance(node, YamlText) and node.text.lower() in YAML_BOOLEANS:
            problems.refuse(node, f"{quote(node.text)} is read in two ways", f"allowed is {self.words}, without quotes")
        else:
            self.refuse(node, problems)
        return None


class NumberReader(ValueReader):
    """A whole number within bounds."""

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most
        self.words = f"a whole number from {least} to {most}" if least < most else str(least)

    def read(self, node: YamlNode, path: TextPath, problems: Problems) -> int | None:
        if isinstance(node, YamlText) and node.plain and re.fullmatch(r"0|[1-9][0-9]{0,8}", node.text):
            number = int(node.text)
            if self.least <= number <= self.most:
                return number
        self.refuse(node, problems)
        return None


class LengthReader(ValueReader):
    """A length of time, returned as text in its shortest spelling, so that equal ones are equal."""

    words = "a length of time such as 90s, 10m or 1h 30m"

    def __init__(self, least: str, most: str) -> None:
        self.least, self.most = least, most

    def read(self, node: YamlNode, path: TextPath, problems: Problems) -> str | None:
        if not isinstance(node, YamlText) or node.absent:
            self.refuse(node, problems)
            return None
        try:
            length_us = microseconds(node.text)
        except ValueError:
            problems.refuse(node, f"{quote(node.text)} is no length of time", f"allowed is {ALLOWED}")
            return None
        if not microseconds(self.least) <= length_us <= microseconds(self.most):
            problems.refuse(node, f"{quote(node.text)} is not allowed here", f"allowed are {self.least} to {self.most}")
            return None
        return format_us(length_us)


class ChoiceReader(ValueReader):
    """One of a few words."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices
        self.words = " or ".join((", ".join(choices[:-1]), choices[-1])) if len(choices) > 1 else choices[0]

    def read(self, node: YamlNode, path: TextPath, problems: Problems) -> str | None:
        if isinstance(node, YamlText) and node.text in self.choices:
            return node.text
        near = guess(node.text, list(self.choices)) if isinstance(node, YamlText) else ""
        problems.refuse(node, f"{describe_node(node)}{near}", f"allowed is {self.words}")
        return None


class ListReader(ValueReader):
    """A list of values of one kind; with `or_single`, a value alone is a list of it."""

    def __init__(
        self, item: ValueReader, words: str, *, least: int = 1, most: int = 100, or_single: bool = False,
        distinct: bool = True,
    ) -> None:  # fmt: skip
        self.item, self.least, self.most, self.or_single, self.distinct = item, least, most, or_single, distinct
        self.words = words or f"{item.words}, or a list of it"

    def read(self, node: YamlNode, path: TextPath, problems: Problems) -> tuple[Any, ...] | None:
        if self.or_single and not isinstance(node, YamlList):
            value = self.item.read(node, path, problems)
            return None if value is None else (value,)
        if not isinstance(node, YamlList):
            self.refuse(node, problems)
            return None
        if not self.least <= len(node.items) <= self.most:
            problems.refuse(node, f"a list of {len(node.items)}", f"allowed are {self.least} to {self.most}")
            return None
        values: list[Any] = []
        for place, item in enumerate(node.items):
            problems.places[(*path, place)] = item
            value = self.item.read(item, (*path, place), problems)
            if self.distinct and value is not None and value in values:
                problems.refuse(item, f"{quote(str(value))} is in this list twice", "keep one of them")
            values.append(value)
        return tuple(value for value in values if value is not None)


class TableReader(ValueReader):
    """A map from names to values of one kind."""

    def __init__(self, name: TextReader, item: ValueReader, words: str, *, least: int = 0, most: int = 100) -> None:
        self.name, self.item, self.words, self.least, self.most = name, item, words, least, most

    def read(self, node: YamlNode, path: TextPath, problems: Problems) -> dict[str, Any] | None:
        if not isinstance(node, YamlMap):
            self.refuse(node, problems)
            return None
        if not self.least <= len(node.pairs) <= self.most:
            problems.refuse(node, f"a map of {len(node.pairs)}", f"allowed are {self.least} to {self.most}")
            return None
        values: dict[str, Any] = {}
        for key, item in node.pairs:
            name = self.name.read(key, path, problems)
            problems.places[(*path, key.text)] = key
            value = self.item.read(item, (*path, key.text), problems)
            if name is not None and value is not None:
                values[name] = value
        return values


class RecordReader(ValueReader):
    """A map with known keys, read as a struct. Keys of `unserved` are known, and refused by name."""

    def __init__(
        self, kind: type[msgspec.Struct], name: str, *, short: str | None = None, unserved: Iterable[str] = ()
    ) -> None:
        self.kind, self.name, self.short, self.unserved = kind, name, short, tuple(unserved)

    @property
    def words(self) -> str:  # type: ignore[override]
        """What is allowed: the keys, of which the struct may be made later than this reader."""
        keys = f"a map with {', '.join(list_keys(self.kind))}"
        return keys if self.short is None else f"text, or {keys}"

    def read(self, node: YamlNode, path: TextPath, problems: Problems) -> msgspec.Struct | None:
        keys = list_keys(self.kind)
        if self.short is not None and isinstance(node, YamlText):
            value = keys[self.short].reader.read(node, path, problems)
            return None if value is None else self.kind(**{self.short: value})
        if not isinstance(node, YamlMap):
            self.refuse(node, problems)
            return None
        values: dict[str, Any] = {}
        for key, item in node.pairs:
            if key.text not in keys:
                self.refuse_key(key, list(keys), problems)
                continue
            problems.places[(*path, key.text)] = item
            values[key.text] = keys[key.text].reader.read(item, (*path, key.text), problems)
        usable = True
        for name, key_kind in keys.items():
            if key_kind.required and name not in values:
                problems.refuse(node, f"{self.name} has no '{name}'", f"allowed is {key_kind.reader.words}")
            usable = usable and not (key_kind.required and values.get(name) is None)
        return self.kind(**{name: value for name, value in values.items() if value is not None}) if usable else None

    def refuse_key(self, key: YamlText, known: list[str], problems: Problems) -> None:
        """Adds the problem of a key that is not known, or cannot be served."""
        if key.text in self.unserved:
            wrong = f"the key '{key.text}' cannot be served by this version"
            problems.refuse(key, wrong, "leave it out; nothing is read and then ignored")
            return
        near = guess(key.text, known)
        problems.refuse(key, f"{self.name} has no key {quote(key.text)}{near}", f"allowed are {', '.join(known)}")


@cache
def list_keys(kind: type[msgspec.Struct]) -> dict[str, ConfigKey]:
    """Returns the keys of a struct of the config, in its order."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: next(part for part in hints[name].__metadata__ if isinstance(part, ConfigKey))
        for name in kind.__struct_fields__
    }
