"""The table of docs/database.md that says which column is whose is what the schema, the guard and the rights say."""

import re

import pytest

from interlock.audit.laws.rows import LAWS, REBUILT
from interlock.kernel.rows import Body, Unit, columns
from interlock.store import rights
from interlock.store.flush import BODY_WRITTEN, BY_ACTS, COUNTED, FIXED
from interlock.store.migrations import SCHEMA
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "database.md").read_text(encoding="utf-8")
ACTS, BIRTH = "by acts only", "fixed at birth"


def rows(table: str) -> list[tuple[list[str], str, str]]:
    """The lines of the table of `unit` or `body`: the columns, whose they are, and the laws."""
    _, _, rest = PAGE.partition(f"| columns of `{table}` | whose they are | law |\n")
    lines = rest.partition("\n\n")[0].splitlines()[1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(re.findall(r"`(\w+)`", names), whose, law) for names, whose, law in cells]


def whose(table: str, *words: str) -> set[str]:
    return {name for names, said, _ in rows(table) if said.startswith(words) for name in names}


@pytest.mark.parametrize(("table", "kind"), [("unit", Unit), ("body", Body)])
def test_every_column_is_somebodys_and_once(table: str, kind: type[Unit | Body]) -> None:
    named = [name for names, _, _ in rows(table) for name in names]
    assert sorted(named) == sorted(columns(kind))


def test_what_acts_write_is_what_the_engine_leaves_to_them() -> None:
    assert whose("unit", ACTS) == set(BY_ACTS)
    assert whose("unit", BIRTH) == set(FIXED) - set(COUNTED) - {"cost"}


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_guard_refuses_what_is_not_theirs(database: str) -> None:
    text = (SCHEMA / f"0001_guard.{database}.sql").read_text(encoding="utf-8")
    listed = re.search(r"CREATE TRIGGER guard_unit BEFORE UPDATE OF ([\w\s,]+) ON unit", text)
    assert listed
    guarded = {name.strip() for name in listed[1].split(",")}
    assert guarded == whose("unit", ACTS, BIRTH) - {"decides"}  # which nobody but a birth writes, and no role may


@pytest.mark.parametrize("table", ["unit", "body"])
@pytest.mark.parametrize("role", rights.PURPOSES)
def test_roles_may_write_the_rest_and_no_more(role: str, table: str) -> None:
    granted = {right for right in rights.list_rights(role, table) if right.startswith("UPDATE")}
    free = {name for names, _, _ in rows(table) for name in names} - whose(table, ACTS, BIRTH)
    assert granted == {f"UPDATE({name})" for name in free}


def test_what_is_not_fixed_of_a_body_is_what_the_engine_writes() -> None:
    assert whose("body", "given up", "written at its end") == set(BODY_WRITTEN)


def test_every_law_that_the_table_names_is_asked() -> None:
    """And every derived column has one."""
    known = {*LAWS, REBUILT}
    for table in ("unit", "body"):
        for names, said, laws in rows(table):
            named = [law for law in known if law in laws]
            assert named or not said.startswith(("derived", ACTS, BIRTH)), names
            for part in laws.split(";"):
                assert part.strip() == "–" or any(law in part for law in known) or "CHECK" in part, part
