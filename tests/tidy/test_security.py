"""Every threat of `docs/security.md` names tests that exist."""

import ast
import re

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "security.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
COLUMNS = 4


def threats() -> list[list[str]]:
    """The rows of the threat table, cell by cell."""
    table = PAGE.read_text(encoding="utf-8").partition("## Threats")[2].partition("\n## ")[0]
    rows = [line.strip().strip("|").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return rows[2:]  # without the head and the rule below it


def test_every_threat_says_what_stops_it_and_names_its_test() -> None:
    assert len(threats()) > 5
    for row in threats():
        assert len(row) == COLUMNS, row
        assert all(cell.strip() for cell in row), row
        assert NAMED.search(row[-1]), f"no test is named: {row[0]}"


def test_every_test_that_is_named_exists() -> None:
    for path, name in NAMED.findall(PAGE.read_text(encoding="utf-8")):
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        functions = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        assert name in functions, f"{path} has no {name}"
