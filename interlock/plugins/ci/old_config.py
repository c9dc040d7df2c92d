"""`ci.ai.yaml` version 1, read as `.interlock/ci.yaml`: its tree becomes one of ours by the table below.

Positions stay, so what is wrong is told where it stands in the old file.
"""

from collections.abc import Callable, Sequence

from interlock.plugins.ci.config import CiConfig, read_config
from interlock.plugins.ci.yaml_nodes import Problems, YamlList, YamlMap, YamlNode, YamlText, guess, parse_yaml, quote

OLD_FILE = "ci.ai.yaml"
NOT_SERVED = None


def keep(node: YamlNode) -> YamlNode:
    """Returns a value that both formats write in the same way."""
    return node


def to_seconds(node: YamlNode) -> YamlNode:
    """Returns a number of seconds as a length of time."""
    return change_text(node, f"{node.text}s" if isinstance(node, YamlText) and node.text.isdecimal() else None)


def invert(node: YamlNode) -> YamlNode:
    """Returns true for false, and false for true."""
    words = {"true": "false", "false": "true"}
    return change_text(node, words.get(node.text) if isinstance(node, YamlText) else None)


def to_retries(node: YamlNode) -> YamlNode:
    """Returns a number of retries as one for faults of the machine and one for flaky tests."""
    pairs = [(make_key(node, name), node) for name in ("runner", "flaky")]
    return YamlMap(line=node.line, column=node.column, pairs=pairs)


def to_supersede(node: YamlNode) -> YamlNode:
    """Returns which older runs a new one cancels."""
    words = {"true": "always", "false": "never"}
    return change_text(node, words.get(node.text) if isinstance(node, YamlText) else None)


def to_artifacts(node: YamlNode) -> YamlNode:
    """Returns a list of paths as one artifact that is called files."""
    if not isinstance(node, YamlList) or not node.items:
        return node
    artifact = YamlMap(
        line=node.line, column=node.column,
        pairs=[(make_key(node, "name"), make_key(node, "files")), (make_key(node, "paths"), node)],
    )  # fmt: skip
    return YamlList(line=node.line, column=node.column, items=[artifact])


def to_nothing(node: YamlNode) -> YamlNode | None:
    """Returns None for the root of the repository as the folder of a job: that is where our jobs run."""
    return None if isinstance(node, YamlText) and node.text == "." else node


Conversion = Callable[[YamlNode], YamlNode | None]
# The key of the old file, with * for the name of a job; the key of ours, none if there is none; and how the value is
# converted, to None if it says what is so in any case.
TABLE: dict[tuple[str, ...], tuple[tuple[str, ...], Conversion] | None] = {
    ("version",): (("version",), keep),
    ("jobs", "*", "steps"): (("jobs", "*", "steps"), keep),
    ("jobs", "*", "env"): (("jobs", "*", "env"), keep),
    ("jobs", "*", "artifacts"): (("jobs", "*", "artifacts"), to_artifacts),
    ("jobs", "*", "workdir"): ((), to_nothing),
    ("jobs", "*", "image"): NOT_SERVED,
    ("jobs", "*", "caches"): NOT_SERVED,
    ("jobs", "*", "policy", "required"): (("jobs", "*", "allow_failure"), invert),
    ("jobs", "*", "policy", "allow_failure"): (("jobs", "*", "allow_failure"), keep),
    ("jobs", "*", "policy", "retries"): (("jobs", "*", "retries"), to_retries),
    ("jobs", "*", "policy", "timeout_seconds"): (("jobs", "*", "timeout"), to_seconds),
    ("policies", "runs", "cancel_superseded"): (("run", "supersede"), to_supersede),
    ("policies", "runs", "max_runtime_seconds"): (("run", "timeout"), to_seconds),
    ("policies", "runs", "max_concurrency"): NOT_SERVED,
    ("limits", "cpu"): NOT_SERVED,
    ("limits", "memory"): NOT_SERVED,
    ("limits", "disk"): NOT_SERVED,
}


def make_key(node: YamlNode, text: str) -> YamlText:
    """Returns a text in the place of a node."""
    return YamlText(line=node.line, column=node.column, text=text)


def change_text(node: YamlNode, text: str | None) -> YamlNode:
    """Returns a node with another text; the node itself where there is none, so that its reader refuses it."""
    return node if text is None else make_key(node, text)


def parse_old_config(data: bytes, file: str = OLD_FILE) -> CiConfig:
    """Returns the config that an old file means.

    Raises:
        ConfigError: everything that is wrong with it, as `file:line:column: what was wrong; what is allowed`.
        InterlockError: PyYAML is not installed.
    """
    problems = Problems(file)
    top = parse_yaml(data, problems)
    if not isinstance(top, YamlMap):
        return read_config(top, problems)
    renamed = YamlMap(line=top.line, column=top.column, pairs=[])
    convert_map(top, (), (), renamed, problems)
    return read_config(renamed, problems)


def convert_map(node: YamlMap, path: tuple[str, ...], names: tuple[str, ...], top: YamlMap, problems: Problems) -> None:
    """Writes what a map of the old file says to the new tree.

    Parameters:
        path: where the map stands in the table.
        names: the names that stand for * in it.
    """
    for key, value in node.pairs:
        known = list(dict.fromkeys(row[len(path)] for row in TABLE if row[: len(path)] == path))
        word = "*" if known == ["*"] else key.text
        below, called = (*path, word), (*names, key.text) if word == "*" else names
        if word not in known:
            wrong = f"there is no key {quote(key.text)}{guess(key.text, known)}"
            problems.refuse(key, wrong, f"allowed are {', '.join(known)}")
        elif below not in TABLE:
            if word == "*":
                find_map(top, [("jobs", key), (key.text, key)])
            if isinstance(value, YamlMap):
                convert_map(value, below, called, top, problems)
            else:
                problems.refuse(value, "this is no map", "allowed is a map")
        else:
            convert_value(key, value, below, called, top, problems)


def convert_value(
    key: YamlText, value: YamlNode, path: tuple[str, ...], names: tuple[str, ...], top: YamlMap, problems: Problems
) -> None:
    """Writes a value of the old file to the new tree, under the key that the table names."""
    row = TABLE[path]
    if row is NOT_SERVED:
        wrong = f"the key '{key.text}' cannot be served by this version"
        problems.refuse(key, wrong, "leave it out; nothing is read and then ignored")
        return
    target, convert = row
    left = iter(names)
    words = [next(left) if word == "*" else word for word in target]
    converted = convert(value)
    if converted is None:
        return
    if not target:
        problems.refuse(value, f"this '{key.text}' cannot be served by this version", "leave it out, or write .")
        return
    parent = find_map(top, [(word, key) for word in words[:-1]])
    others = [place for place, (other, _) in enumerate(parent.pairs) if other.text == words[-1]]
    if not others:
        parent.pairs.append((YamlText(line=key.line, column=key.column, text=words[-1]), converted))
    elif isinstance(converted, YamlText) and converted.text == "true":  # not required, or allowed to fail
        parent.pairs[others[0]] = (parent.pairs[others[0]][0], converted)


def find_map(top: YamlMap, words: Sequence[tuple[str, YamlText]]) -> YamlMap:
    """Returns the map below a row of keys; those that are not there are made, in the place of what they come from."""
    node = top
    for word, origin in words:
        inner = next((value for key, value in node.pairs if key.text == word), None)
        if inner is None:
            inner = YamlMap(line=origin.line, column=origin.column, pairs=[])
            node.pairs.append((YamlText(line=origin.line, column=origin.column, text=word), inner))
        assert isinstance(inner, YamlMap)
        node = inner
    return node
