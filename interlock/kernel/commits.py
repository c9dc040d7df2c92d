"""What work on a repository came to: what its handler returned, and the commit of what it changed."""

from typing import Any

COMMIT, VALUE = "commit", "value"  # members of a result
DIGITS = frozenset("0123456789abcdef")
LENGTHS = (40, 64)  # of the id of a commit, by SHA-1 and by SHA-256


def add_commit(value: Any, commit: str) -> dict[str, Any]:
    """Returns what a handler returned, with the commit of its worktree.

    An object gets a member more. Anything else is the `value` of a new object, and so is an object that could be taken
    for such a one: `take_value` gives back what was returned.
    """
    if value is None:
        return {COMMIT: commit}
    if isinstance(value, dict) and COMMIT not in value and value.keys() != {VALUE}:
        return {**value, COMMIT: commit}
    return {VALUE: value, COMMIT: commit}


def take_value(result: Any) -> Any:
    """Returns what a handler returned; of the outputs of a map, what each of them did. An object keeps its commit."""
    if isinstance(result, list):
        return [take_value(part) for part in result] if all(map(is_wrapped, result)) else result
    return result[VALUE] if is_wrapped(result) else result


def is_wrapped(result: Any) -> bool:
    """Whether a result is a commit and a value that is no object of its own."""
    if not isinstance(result, dict) or result.keys() != {VALUE, COMMIT}:
        return False
    commit = result[COMMIT]
    return isinstance(commit, str) and len(commit) in LENGTHS and DIGITS.issuperset(commit)
