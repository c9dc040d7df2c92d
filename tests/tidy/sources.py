"""The files that the tidy tests read, each parsed once."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.conftest import ROOT

PRODUCT = sorted((ROOT / "interlock").rglob("*.py"))
# What we write beside the product and its tests: names are as plain there.
BESIDE = sorted(path for folder in ("bench", "scripts", "examples") for path in (ROOT / folder).rglob("*.py"))
ALL = sorted(path for folder in ("interlock", "tests", "bench", "scripts") for path in (ROOT / folder).rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    """The path of a file as a reader would write it."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file's syntax tree."""
    return tuple(ast.walk(tree_of(path)))


def functions_of(path: Path) -> Iterator[Function]:
    """The functions and methods of a file, nested ones too."""
    return (node for node in nodes_of(path) if isinstance(node, Function))


@cache
def texts_of(path: Path) -> tuple[str, ...]:
    """The strings of a file that are not docstrings, the fixed parts of f-strings among them."""
    docs = {
        id(node.body[0].value)
        for node in nodes_of(path)
        if isinstance(node, ast.Module | ast.ClassDef | Function) and node.body and isinstance(node.body[0], ast.Expr)
    }
    constants = (node for node in nodes_of(path) if isinstance(node, ast.Constant) and id(node) not in docs)
    return tuple(node.value for node in constants if isinstance(node.value, str))


def words_of(name: str) -> list[str]:
    """The words of an identifier in lower case: `DeadLetter` and `dead_letter` are both dead and letter."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
