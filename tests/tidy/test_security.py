"""Every threat of the pages on security names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = pytest.mark.parametrize("page", ["docs/security.md", "docs/ci/security.md"])
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
COLUMNS = 4


def list_threats(page: Path) -> list[list[str]]:
    """The rows of the threat table of a page, cell by cell."""
    table = page.read_text(encoding="utf-8").partition("## Threats")[2].partition("\n## ")[0]
    rows = [line.strip().strip("|").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return rows[2:]  # without the head and the rule below it


@PAGES
def test_every_threat_says_what_stops_it_and_names_its_test(page: str) -> None:
    threats = list_threats(ROOT / page)
    assert len(threats) > 5
    for row in threats:
        assert len(row) == COLUMNS, row
        assert all(cell.strip() for cell in row), row
        assert NAMED.search(row[-1]), f"no test is named: {row[0]}"


@PAGES
def test_every_test_that_is_named_exists(page: str) -> None:
    for path, name in NAMED.findall((ROOT / page).read_text(encoding="utf-8")):
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        functions = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        assert name in functions, f"{path} has no {name}"
