"""The code itself: ceilings, where things may live, and words that must not appear."""

import ast
import re
import subprocess
from pathlib import Path

from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit
from interlock.lifecycles import shipped
from tests.conftest import ROOT
from tests.tidy.sources import ALL, PRODUCT, functions_of, name_of, nodes_of, texts_of, tree_of

LINES_PER_FILE, LINES_PER_FUNCTION = 600, 60
SQL = re.compile(
    r"\b(SELECT\s.+\sFROM|WHERE\s+\w+\s*[=<>]|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+TABLE)\b"
)
FORBIDDEN_NAMES = re.compile(
    r"^(process_|handle_|do_)|(^|_)(manager|util|utils|helper|helpers)(_|$)|(_ex|_async|_internal)$"
)


def test_files_and_functions_fit() -> None:
    too_long = []
    for path in PRODUCT:
        if len(path.read_text(encoding="utf-8").splitlines()) > LINES_PER_FILE:
            too_long.append(name_of(path))
        too_long += [
            f"{name_of(path)} {function.name}"
            for function in functions_of(path)
            if (function.end_lineno or 0) - function.lineno >= LINES_PER_FUNCTION
        ]
    assert too_long == []


def test_a_module_says_what_is_in_it() -> None:
    """By a docstring whose first line is a sentence."""
    silent = []
    for path in ALL:
        doc = ast.get_docstring(tree_of(path)) or "\n"
        if not doc.splitlines()[0].rstrip().endswith((".", "?")):
            silent.append(name_of(path))
    assert silent == []


def test_no_import_inside_a_function() -> None:
    inside = [
        f"{name_of(path)} {function.name}"
        for path in PRODUCT
        for function in functions_of(path)
        if any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(function))
    ]
    assert inside == []


def test_names_say_what_they_mean() -> None:
    empty = []
    for path in PRODUCT:
        names = [function.name for function in functions_of(path)]
        names += [node.name for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
        empty += [f"{name_of(path)} {name}" for name in [*names, path.stem] if FORBIDDEN_NAMES.search(name.lower())]
    assert empty == []


def test_no_sql_outside_the_store() -> None:
    """But for the queries of plugins, which are about their own tables."""
    outside = [
        path
        for path in PRODUCT
        if "store" not in path.relative_to(ROOT).parts
        and (path.parent.parent.name, path.name) != ("plugins", "queries.py")
    ]
    assert [f"{name_of(path)} {text}" for path in outside for text in texts_of(path) if SQL.search(text)] == []


def test_no_state_name_outside_the_lifecycles() -> None:
    """Code speaks triggers and categories; a state's name is its lifecycle's own business."""
    words = {str(category) for category in Category} | {
        trigger for lifecycle in shipped().values() for _, trigger in lifecycle.moves
    }
    states = (
        {state for lifecycle in shipped().values() for state in lifecycle.states} - words - set(Unit.__struct_fields__)
    )
    assert [f"{name_of(path)} {text}" for path in PRODUCT for text in texts_of(path) if text in states] == []


def names_at_top(path: Path) -> set[str]:
    """What a module of the package offers to others: what it defines, assigns and imports at its top."""
    names = {file.stem for file in path.parent.iterdir()} if path.name == "__init__.py" else set()
    for node in nodes_of(path):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_what_tests_and_benches_import_is_there() -> None:
    """Types are checked for the package alone: a name that was changed in it must not be found out by the last suite."""
    lost = []
    for path in set(ALL) - set(PRODUCT):
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in (
                "interlock",
                "tests",
                "bench",
            ):
                place = ROOT / str(node.module).replace(".", "/")
                file = place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"
                offered = names_at_top(file) if file.exists() else {each.stem for each in place.glob("*")}
                lost += [
                    f"{name_of(path)}: {node.module}.{each.name}" for each in node.names if each.name not in offered
                ]
    assert lost == []


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
