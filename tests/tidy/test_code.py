"""The code itself: ceilings, where things may live, and words that must not appear."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit
from interlock.lifecycles import shipped
from tests.conftest import ROOT

LINES_A_FILE, LINES_A_FUNCTION = 600, 60
PRODUCT = sorted((ROOT / "interlock").rglob("*.py"))
ALL = sorted(path for folder in ("interlock", "tests", "bench", "scripts") for path in (ROOT / folder).rglob("*.py"))
SQL = re.compile(
    r"\b(SELECT\s.+\sFROM|WHERE\s+\w+\s*[=<>]|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+TABLE)\b"
)
FORBIDDEN_NAMES = re.compile(
    r"^(process_|handle_|do_)|(^|_)(manager|util|utils|helper|helpers)(_|$)|(_ex|_async|_internal)$"
)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """String constants that are code, not docstrings."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node


@pytest.mark.parametrize("path", PRODUCT, ids=name)
def test_files_and_functions_fit(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_A_FILE
    for function in functions(ast.parse(text)):
        assert (function.end_lineno or 0) - function.lineno < LINES_A_FUNCTION, function.name


@pytest.mark.parametrize("path", ALL, ids=name)
def test_a_module_says_what_is_in_it(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert doc, "a module docstring of one sentence is wanted"
    assert doc.splitlines()[0].rstrip().endswith((".", "?"))


@pytest.mark.parametrize("path", PRODUCT, ids=name)
def test_no_import_inside_a_function(path: Path) -> None:
    for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
        assert not [node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)], function.name


@pytest.mark.parametrize("path", PRODUCT, ids=name)
def test_names_say_what_they_mean(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = [function.name for function in functions(tree)]
    named += [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert [word for word in [*named, path.stem] if FORBIDDEN_NAMES.search(word.lower())] == []


@pytest.mark.parametrize("path", PRODUCT, ids=name)
def test_no_sql_outside_the_store(path: Path) -> None:
    if "store" not in path.relative_to(ROOT).parts:
        assert [
            node.value for node in texts(ast.parse(path.read_text(encoding="utf-8"))) if SQL.search(node.value)
        ] == []


@pytest.mark.parametrize("path", PRODUCT, ids=name)
def test_no_state_name_outside_the_lifecycles(path: Path) -> None:
    """Code speaks triggers and categories; a state's name is its lifecycle's own business."""
    words = {str(category) for category in Category} | {
        trigger for lifecycle in shipped().values() for _, trigger in lifecycle.moves
    }
    states = (
        {state for lifecycle in shipped().values() for state in lifecycle.states} - words - set(Unit.__struct_fields__)
    )
    found = [node.value for node in texts(ast.parse(path.read_text(encoding="utf-8"))) if node.value in states]
    assert found == []


def tracked() -> list[Path]:
    """The files that a commit holds, or would hold."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    listed = done.stdout.splitlines() if done.returncode == 0 else []
    return [ROOT / line for line in listed if (ROOT / line).is_file()] or ALL


def test_no_registry_and_no_path_of_some_machine_is_named() -> None:
    hosts = re.compile(
        "|".join(["py" + r"pi\.org", "python" + "hosted", r"registry\.np" + "mjs", r"deb\.deb" + r"ian\.org"])
    )
    paths = re.compile(r"(^|[^A-Za-z0-9_.])/(w" + "ork|ro" + "ot|ho" + "me)/")
    for path in tracked():
        text = path.read_bytes().decode("utf-8", errors="replace")
        assert not hosts.search(text), path
        assert not paths.search(text), path


def test_requirements_are_pinned_with_hashes() -> None:
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        pins = [line for line in path.read_text().splitlines() if line and not line.startswith((" ", "#"))]
        assert pins
        assert all("==" in pin for pin in pins)
        assert path.read_text().count("--hash=sha256:") >= len(pins)
    assert not (ROOT / "uv.lock").exists()
