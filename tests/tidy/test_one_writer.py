"""A unit's columns are written in one file of the engine, and by what the flush itself adds to a row."""

import ast
from pathlib import Path

from interlock.kernel.rows import Unit
from tests.conftest import ROOT

WRITER = ROOT / "interlock" / "core" / "advance.py"
COLUMNS = set(Unit.__struct_fields__) - {"id", "tenant", "unit"}
# What else a row named so could be: only what is surely no unit is let pass.
OTHER_ROWS = ("tenants.py", "verbs.py")  # of the engine and of schedules: rows of tenants and of schedules
OTHERS = {"self", "worker", "schedule", "slot", "body", "command"}


def assigned(path: Path) -> list[str]:
    """The columns of units that a file assigns, by attribute or by setattr."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [one for target in node.targets for one in parts(target)]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            found.append(f"{path.name}:{node.lineno} setattr")
        columns = [one for one in targets if isinstance(one, ast.Attribute) and one.attr in COLUMNS]
        found += [
            f"{path.name}:{node.lineno} {ast.unparse(one)}" for one in columns if name_of(one.value) not in OTHERS
        ]
    return found


def parts(target: ast.expr) -> list[ast.expr]:
    return list(target.elts) if isinstance(target, ast.Tuple | ast.List) else [target]


def name_of(value: ast.expr) -> str:
    return value.id if isinstance(value, ast.Name) else ""


def test_no_other_file_of_the_engine_writes_a_unit() -> None:
    folders = (ROOT / "interlock" / "core", ROOT / "interlock" / "plugins")
    files = [path for folder in folders for path in folder.rglob("*.py") if path != WRITER]
    assert len(files) > 30
    found = [one for path in sorted(files) for one in assigned(path) if not one.startswith(OTHER_ROWS)]
    assert found == []


def test_the_writer_is_seen_to_write() -> None:
    assert len(assigned(WRITER)) > 20
