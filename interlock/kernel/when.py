"""Conditions of `when`: `test.passed and build["size"] < 500`. Parsed and evaluated, never executed.

A name is an earlier step's output or an argument of the run; dots and brackets go into it. What is not there is null,
and two things that cannot be compared are not less, nor more, than each other.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from interlock.kernel.errors import InterlockError

TEXT_MAX = 1_000  # characters
ALLOWED = (
    "names of earlier steps and arguments, .field and [key], text, numbers, true, false, null, lists, == != < <= > >=, "
    "in, and, or, not"
)
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda item, many: item in many, ast.NotIn: lambda item, many: item not in many,
}  # fmt: skip
WORDS = {"true": True, "false": False, "null": None}


@lru_cache(maxsize=1024)
def parse_condition(text: str) -> ast.expr:
    """A condition that may be asked.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    try:
        if len(text) > TEXT_MAX:
            raise ValueError(f"it has {len(text)} characters, and {TEXT_MAX} are allowed")
        tree = ast.parse(text.strip(), mode="eval").body
        refuse_strange(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InterlockError(f"when = '{text[:80]}' is not allowed: {why}; allowed are {ALLOWED}") from None
    return tree


def refuse_strange(tree: ast.expr) -> None:
    """Refuses everything in a condition that is more than a comparison."""
    for node in ast.walk(tree):
        plain = ast.BoolOp | ast.UnaryOp | ast.Compare | ast.Name | ast.Attribute | ast.Subscript | ast.Constant
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not | ast.USub):
            raise ValueError("only `not` and a minus stand before something")
        if isinstance(node, ast.Compare) and any(type(item) not in COMPARE for item in node.ops):
            raise ValueError("`is` compares nothing here")
        if isinstance(node, ast.expr) and not isinstance(node, plain | ast.List | ast.Tuple):
            raise ValueError(f"`{ast.unparse(node)}` is more than a condition")
        if isinstance(node, ast.Constant) and not isinstance(node.value, str | int | float | None):
            raise ValueError(f"`{ast.unparse(node)}` is more than a condition")


def names(text: str) -> set[str]:
    """The steps and arguments that a condition asks about."""
    return {node.id for node in ast.walk(parse_condition(text)) if isinstance(node, ast.Name)} - WORDS.keys()


def holds(text: str, known: Mapping[str, Any]) -> bool:
    """Whether a condition is true of these outputs and arguments."""
    return bool(value(parse_condition(text), known))


def value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Returns the value of a part of a condition; what is missing is None."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return WORDS[node.id] if node.id in WORDS else known.get(node.id)
        case ast.Attribute():
            return inside(value(node.value, known), node.attr)
        case ast.Subscript():
            return inside(value(node.value, known), value(node.slice, known))
        case ast.List() | ast.Tuple():
            return [value(item, known) for item in node.elts]
        case ast.UnaryOp():
            return (
                negative(value(node.operand, known))
                if isinstance(node.op, ast.USub)
                else not value(node.operand, known)
            )
        case ast.BoolOp():
            each = (value(item, known) for item in node.values)
            return all(each) if isinstance(node.op, ast.And) else any(each)
        case ast.Compare():
            return compare_values(node, known)
    raise AssertionError(ast.dump(node))


def inside(whole: Any, key: Any) -> Any:
    """A part of an output; null if there is none."""
    try:
        return whole[key]
    except (LookupError, TypeError):
        return None


def negative(number: Any) -> Any:
    """Returns a number with the other sign; of anything else, None."""
    return -number if isinstance(number, int | float) else None


def compare_values(node: ast.Compare, known: Mapping[str, Any]) -> bool:
    """Compares values as a condition does; what cannot be compared is not equal, and neither less nor greater."""
    left = value(node.left, known)
    for sign, right_node in zip(node.ops, node.comparators, strict=True):
        right = value(right_node, known)
        try:
            if not COMPARE[type(sign)](left, right):
                return False
        except TypeError:
            return False
        left = right
    return True
