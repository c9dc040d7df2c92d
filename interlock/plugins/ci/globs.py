"""Globs over many paths at once, in linear time.

A glob is split at `/`. `*` and `?` match within a name, `**` matches any number of names, and everything else is
itself. All globs together are one tree of names: a path is walked down it with the set of nodes that its names may
have led to, and that set is remembered for each folder, so that 10,000 paths cost little more than their own names. A
glob is never a regular expression, which could try the same letters again and again: each name is compared with each
pattern at most once, piece by piece from the left, because the leftmost place of a piece leaves most room for the rest.

`steps` counts the comparisons of names and of letters, so that a test can say how they grow.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby


@dataclass
class GlobNode:
    """A place in the tree of globs: where the next name leads, and which globs end here."""

    names: dict[str, "GlobNode"] = field(default_factory=dict)
    patterns: dict[str, "GlobNode"] = field(default_factory=dict)
    any_depth: "GlobNode | None" = None  # behind **
    is_pattern: bool = False
    loops: bool = False  # is itself behind **, and takes every name
    ends: list[int] = field(default_factory=list)


class GlobSet:
    """Many globs, matched together."""

    def __init__(self, globs: Iterable[str]) -> None:
        self.globs = list(dict.fromkeys(globs))
        self.steps = 0
        self.top = GlobNode()
        self.numbers: dict[str, int] = {}  # of each name that was met
        self.flags: dict[str, bytearray] = {}  # for each pattern, which names it matches, by their numbers
        for number, glob in enumerate(self.globs):
            node = self.top
            for word in (f"{glob}/*" if glob.endswith("**") else glob).split("/"):  # ** at the end: all below
                node = find_child(node, word)
                if node.is_pattern:
                    self.flags[word] = bytearray()
            node.ends.append(number)
        self.folders: dict[str, list[GlobNode]] = {"": enter([self.top])}

    def match(self, path: str) -> list[str]:
        """Returns the globs that match a path, in the order in which they were given."""
        self.prepare([path])
        folder, _, name = path.rpartition("/")
        nodes = self.step(self.walk(folder), name)
        return [self.globs[number] for number in sorted({end for node in nodes for end in node.ends})]

    def match_all(self, paths: Sequence[str]) -> dict[str, list[str]]:
        """Returns the paths that each glob matches, in the order of the paths, without globs that match none."""
        self.prepare(paths)
        matched: dict[str, list[str]] = {}
        for path in paths:
            for glob in self.match(path):
                matched.setdefault(glob, []).append(path)
        return matched

    def prepare(self, paths: Iterable[str]) -> None:
        """Compares the names of paths that are new with every pattern."""
        names = list(dict.fromkeys(name for path in paths for name in path.split("/") if name not in self.numbers))
        if names:
            self.numbers |= {name: number for number, name in enumerate(names, start=len(self.numbers))}
            words = WordIndex(names)
            for pattern, flags in self.flags.items():
                flags += self.compare(simplify(pattern), words)

    def compare(self, pattern: str, words: "WordIndex") -> bytearray:
        """Returns which names match a pattern. Looked at are those that end as it ends, or have its rarest piece."""
        flags = bytearray(len(words.names))
        candidates = words.find_by_tail(pattern[max(pattern.rfind("*"), pattern.rfind("?")) + 1 :])
        if candidates is None:
            candidates = words.find_by_piece([piece for piece in pattern.replace("?", "*").split("*") if piece])
        for number in candidates:
            flags[number], steps = match_name(pattern, words.names[number])
            self.steps += steps
        self.steps += words.steps
        words.steps = 0
        return flags

    def walk(self, folder: str) -> list[GlobNode]:
        """Returns the nodes to which the names of a folder lead."""
        missing = []
        while folder not in self.folders:
            folder, _, name = folder.rpartition("/")
            missing.append(name)
        nodes = self.folders[folder]
        for name in reversed(missing):
            nodes = self.step(nodes, name)
            folder = f"{folder}/{name}" if folder else name
            self.folders[folder] = nodes
        return nodes

    def step(self, nodes: Sequence[GlobNode], name: str) -> list[GlobNode]:
        """Returns the nodes to which a name leads from others."""
        reached: dict[int, GlobNode] = {}
        number = self.numbers[name]
        for node in nodes:
            self.steps += 1 + len(node.patterns)
            if node.loops:
                reached[id(node)] = node
            if (child := node.names.get(name)) is not None:
                reached[id(child)] = child
            for pattern, child in node.patterns.items():
                if self.flags[pattern][number]:
                    reached[id(child)] = child
        return enter(reached.values())


class WordIndex:
    """Names, and which of them a pattern may match. What is not worth looking up is every name."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.joined = names, f"/{'/'.join(names)}/"
        self.backwards = sorted((name[::-1], number) for number, name in enumerate(names))
        self.counts: dict[str, int] = {}  # of each piece that was looked for
        self.steps = 0

    def is_few(self, count: int) -> bool:
        return count * 4 < len(self.names)

    def find_by_tail(self, tail: str) -> Iterable[int] | None:
        """Returns the numbers of the names that end so; None if there is no end to go by, or most names have it."""
        wanted, length = tail[::-1], len(tail)
        if not tail:
            return None
        first = bisect_left(self.backwards, wanted, key=lambda entry: entry[0][:length])
        behind = bisect_right(self.backwards, wanted, first, key=lambda entry: entry[0][:length])
        self.steps += len(self.names).bit_length() * length
        return [number for _, number in self.backwards[first:behind]] if self.is_few(behind - first) else None

    def find_by_piece(self, pieces: Sequence[str]) -> Iterable[int]:
        """Returns the numbers of the names that have the rarest of these pieces."""
        new_pieces = {*pieces} - self.counts.keys()
        self.counts |= {piece: self.joined.count(piece) for piece in new_pieces}
        self.steps += len(pieces) + len(new_pieces) * len(self.names)
        rarest = min(pieces, key=self.counts.__getitem__, default="")
        if not rarest or not self.is_few(self.counts[rarest]):
            return range(len(self.names))
        return dict.fromkeys(self.find_numbers(rarest))

    def find_numbers(self, piece: str) -> Iterable[int]:
        """Yields the numbers of the names that have a piece."""
        at = number = 0
        for _ in range(self.counts[piece]):
            place = self.joined.find(piece, at)
            number += self.joined.count("/", at, place)
            yield number - 1
            at = place + len(piece)


def simplify(pattern: str) -> str:
    """Returns a pattern in which `*?*?` is `??*`: at least two letters, and nothing to look for."""
    parts = []
    for is_wild, signs in groupby(pattern, "*?".__contains__):
        run = "".join(signs)
        parts.append("?" * run.count("?") + "*" if is_wild and "*" in run else run)
    return "".join(parts)


def find_child(node: GlobNode, word: str) -> GlobNode:
    """Returns where a part of a glob leads from a node; it is made if it is not there."""
    if word == "**":
        if node.loops:  # **/** is **
            return node
        if node.any_depth is None:
            node.any_depth = GlobNode(loops=True)
        return node.any_depth
    is_pattern = "*" in word or "?" in word
    children = node.patterns if is_pattern else node.names
    return children.setdefault(word, GlobNode(is_pattern=is_pattern))


def enter(nodes: Iterable[GlobNode]) -> list[GlobNode]:
    """Returns nodes and those behind a ** that matches nothing."""
    entered: list[GlobNode] = []
    for node in nodes:
        entered.append(node)
        if node.any_depth is not None:
            entered.append(node.any_depth)
    return list({id(node): node for node in entered}.values())


def match_name(pattern: str, name: str) -> tuple[bool, int]:
    """Returns whether a name matches a pattern of letters, `*` and `?`, and how many letters were compared."""
    first, *middle = pattern.split("*")
    if not middle:
        return len(first) == len(name) and fits(first, name, 0), len(first)
    last = middle.pop()
    steps = len(first) + len(last)
    if len(first) + len(last) > len(name) or not fits(first, name, 0) or not fits(last, name, len(name) - len(last)):
        return False, steps
    at, end = len(first), len(name) - len(last)
    for piece in middle:
        place = find_piece(piece, name, at, end)
        steps += ((end if place < 0 else place + len(piece)) - at) * (len(piece) if "?" in piece else 1)
        if place < 0:
            return False, steps
        at = place + len(piece)
    return True, steps


def fits(piece: str, name: str, at: int) -> bool:
    """Returns whether a piece without * stands at a place of a name."""
    if "?" not in piece:
        return name.startswith(piece, at)
    return not piece.strip("?") or all(sign in ("?", name[at + place]) for place, sign in enumerate(piece))


def find_piece(piece: str, name: str, at: int, end: int) -> int:
    """Returns the leftmost place of a piece without * between two places of a name; -1 if there is none."""
    if "?" not in piece:
        return name.find(piece, at, end)
    return next((place for place in range(at, end - len(piece) + 1) if fits(piece, name, place)), -1)


def match_any(globs: Sequence[str], word: str) -> bool:
    """Returns whether a branch or a tag matches one of a few globs."""
    return bool(GlobSet(globs).match(word))
