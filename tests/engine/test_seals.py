"""Seals: each stands for the acts behind the one before it; what is changed below one is found there, and only there."""

from itertools import pairwise

import pytest

from interlock.audit.laws import audit
from interlock.lifecycles import shipped
from interlock.store.queries.evidence import count_unsealed
from interlock.store.queries.snapshots import read_due_tenants, snapshot
from interlock.store.seals import EVERY_US, write_seal
from tests.engine.tamper import behind_the_guard
from tests.engine.world import SECOND, World
from tests.store.databases import declare

SEALED = "seals are those of the acts below them"


@pytest.fixture
def sealed(world: World) -> World:
    """Three seals, each of one job's birth, and a job that none of them knows."""
    for _ in range(3):
        world.submit()
        world.pass_time(1)
        world.tick()
    world.submit()
    return world


def seals(world: World) -> list[tuple[int, int, int]]:
    declare(world.connection, 1)
    rows = world.connection.rows("SELECT number, first_act, last_act FROM seal ORDER BY number")
    return [(number, first, last) for number, first, last in rows]


def findings(world: World, from_seal: int = 1) -> list[str]:
    with snapshot(world.connection):
        found = [*audit(world.connection, shipped(), from_seal=from_seal)]
    assert {one.law for one in found} <= {SEALED}, found
    return [one.text for one in found]


def test_what_no_seal_knows_yet_is_counted(sealed: World) -> None:
    with snapshot(sealed.connection):
        unsealed = count_unsealed(sealed.connection)
    assert unsealed == (1, sealed.now_us)
    sealed.pass_time(1)
    sealed.tick()
    with snapshot(sealed.connection):
        assert count_unsealed(sealed.connection) == (0, None)


def test_seals_follow_each_other_one_a_second_at_most(sealed: World) -> None:
    found = seals(sealed)
    assert [number for number, _, _ in found] == [1, 2, 3]
    assert all(before[2] < after[1] for before, after in pairwise(found))
    assert sealed.tick() == 0
    assert seals(sealed) == found
    sealed.pass_time(EVERY_US / SECOND)
    sealed.tick()
    assert len(seals(sealed)) == 4
    sealed.pass_time(60)
    sealed.tick()
    assert len(seals(sealed)) == 4, "nothing was done meanwhile"


def test_a_tenant_whose_acts_are_not_sealed_is_ticked_for(sealed: World) -> None:
    with snapshot(sealed.connection):
        assert read_due_tenants(sealed.connection) == [1]
    sealed.pass_time(1)
    sealed.tick()
    with snapshot(sealed.connection):
        assert read_due_tenants(sealed.connection) == []


def test_an_act_that_was_removed_is_found_in_its_seal_alone(sealed: World, server: str) -> None:
    """A unit that goes with its act leaves no other trace."""
    _, second, _ = seals(sealed)
    with behind_the_guard(sealed.connection, server) as owner:
        (unit,) = owner.rows("SELECT id FROM unit WHERE born = :act", {"act": second[1]})[0]
        for table, column, one in (
            ("act", "id", second[1]), ("body", "unit", unit), ("unit", "id", unit),
            *([("member", "act", second[1])] if owner.name == "sqlite" else []),
        ):  # fmt: skip
            owner.rows(f"DELETE FROM {table} WHERE {column} = :one", {"one": one})
    (text,) = findings(sealed)
    assert text.startswith("seal 2 of tenant 1 is not that of the acts up to ")
    assert findings(sealed, from_seal=2) == [text]
    assert findings(sealed, from_seal=3) == []


def test_an_act_below_a_seal_that_it_does_not_know_is_found(sealed: World, server: str) -> None:
    _, (_, first, last), _ = seals(sealed)
    with behind_the_guard(sealed.connection, server) as owner:
        owner.rows(
            "INSERT INTO act_gone (id, tenant, digest) VALUES (:id, 1, :digest)",
            {"id": first - 1 if owner.name == "postgres" else last, "digest": "0" * 64},
        )
    assert [text.split(" is ")[0] for text in findings(sealed)] == ["seal 2 of tenant 1"]


@pytest.mark.parametrize("changed", ["root = '00'", "acts = acts + 1", "first_act = first_act + 1"])
def test_a_seal_that_says_something_else_is_found(sealed: World, server: str, changed: str) -> None:
    with behind_the_guard(sealed.connection, server) as owner:
        owner.rows(f"UPDATE seal SET {changed} WHERE number = 2")
    assert findings(sealed)[0].startswith("seal 2 of tenant 1 is not that of the acts up to ")


def test_a_seal_that_is_gone_is_missed(sealed: World, server: str) -> None:
    with behind_the_guard(sealed.connection, server) as owner:
        owner.rows("DELETE FROM seal WHERE number = 2")
    assert findings(sealed) == ["seal 2 of tenant 1 is missing"]


def test_a_second_sealer_changes_nothing(sealed: World) -> None:
    before = seals(sealed)
    declare(sealed.connection, 1)
    write_seal(sealed.connection, 1, sealed.now_us)
    assert seals(sealed) == before


@pytest.mark.parametrize(
    "changed",
    [
        "UPDATE path_hop SET name = 'renamed' WHERE place = 1",
        "UPDATE path_hop SET attempt = attempt + 1 WHERE place = 2",
        "UPDATE path_hop SET fence = fence + 1 WHERE place = 2",
        "UPDATE transition_path SET opens = opens + 1 WHERE opens > 0",
        "UPDATE transition_path SET lease_ends = 1 WHERE lease_ends = 0 AND grants = 1",
        "UPDATE transition_path SET target = 'succeeded' WHERE target = 'failed'",
    ],
)
def test_a_path_that_was_changed_is_found(world: World, server: str, changed: str) -> None:
    with behind_the_guard(world.connection, server) as owner:
        owner.rows(changed)
    with snapshot(world.connection):
        laws = {one.law for one in audit(world.connection, shipped())}
    assert laws == {"paths are what their digests say"}
