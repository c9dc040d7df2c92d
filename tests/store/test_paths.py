"""Every trigger of every lifecycle, driven along its listed paths by the database itself.

A unit is put wherever acts can put it, step by step from its birth, and from there it takes each path that begins there.
The database then says of it what the path says.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.paths import BORN, FORCE, SELF, Path, Paths, Step, listed_paths
from tests.store.databases import Connection, fresh
from tests.store.raw_acts import LEASES, LIVES, bear, transaction, write_act

UNDER_LEASE = (Category.HELD, Category.ACTIVE, Category.CLOSING)
NAMES = sorted(LIVES.keys() - {"lease"})


class Place(NamedTuple):
    """Where a unit can be: its state, that of its last lease, and whether that one is live."""

    state: str
    lease: str | None
    live: bool


NOWHERE = Place(BORN, None, live=False)


def goes(life: Lifecycle, path: Path, at: Place) -> bool:
    """Whether a unit that is there can take this path."""
    if path.source != at.state:
        return False
    if path.grants:
        return not at.live
    if path.lease_from is not None:
        return at.live and path.lease_from == at.lease
    return not at.live or (path.category or life.category(at.state)) in UNDER_LEASE


def behind(path: Path, at: Place) -> Place:
    """Where the path leaves it."""
    live = not path.lease_ends and (bool(path.grants) or at.live)
    return Place(path.target, path.lease_to or at.lease, live)


def routes(life: Lifecycle, paths: list[Path]) -> dict[Place, list[Path]]:
    """Every place, and the shortest way to it."""
    found: dict[Place, list[Path]] = {NOWHERE: []}
    waiting = deque([NOWHERE])
    while waiting:
        at = waiting.popleft()
        for path in paths:
            if goes(life, path, at) and behind(path, at) not in found:
                found[behind(path, at)] = [*found[at], path]
                waiting.append(behind(path, at))
    return found


def test_every_move_of_every_lifecycle_is_a_listed_path() -> None:
    paths = Paths(LIVES)
    for name in NAMES:
        listed = {path.id for path in listed_paths(LIVES[name], LEASES)}
        for source, trigger in LIVES[name].moves:
            assert paths.find(name, source or BORN, None, (Step(trigger),)).id in listed, (name, source, trigger)


@pytest.fixture(scope="module", params=["sqlite memory", "postgres"])
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, server: str
) -> Iterator[Connection]:
    with fresh(request.param, tmp_path_factory.mktemp("paths"), server) as connection:
        yield connection


def told(database: Connection, unit: int) -> tuple[Any, ...]:
    columns = "state, category, outcome, version, attempt, fence, lease, lease_id IS NOT NULL, started_at IS NOT NULL"
    row = database.rows(f"SELECT {columns} FROM unit WHERE id = :unit", {"unit": unit})[0]
    return (*row[:7], bool(row[7]), bool(row[8]))


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_takes_every_path(database: Connection, name: str) -> None:
    life = LIVES[name]
    paths = list({path.id: path for path in listed_paths(life, LEASES)}.values())
    ways = routes(life, paths)
    driven: set[tuple[str | None, str]] = set()
    taken: set[int] = set()
    unit = NAMES.index(name) * 100_000
    for at, way in ways.items():
        for path in paths:
            if goes(life, path, at):
                unit += 1
                drive(database, life, unit, [*way, path])
                taken.add(path.id)
                driven |= {(hop.source or None, hop.trigger) for hop in path.hops if hop.trigger != SELF}
    assert {path.id for path in paths} == taken
    assert {(source, trigger) for source, trigger in life.moves} <= driven
    assert not any(trigger == FORCE for _, trigger in driven)


def drive(database: Connection, life: Lifecycle, unit: int, way: list[Path]) -> None:
    """A unit is born and takes these paths, one after the other; the database says the same of it as they do."""
    state, category, outcome, version, attempt, fence = BORN, "", None, 0, 1, 0
    at, begun = NOWHERE, False
    with transaction(database):
        for path in way:
            if path.source == BORN:
                bear(database, unit, lifecycle=life.name, by=path.hops[0].trigger)
            else:
                write_act(database, path, unit)
            at = behind(path, at)
            state, category = path.target, path.category or category
            outcome = {0: None, 1: category, 2: outcome}[path.outcome]
            begun = {0: begun, 1: True, 2: False, 3: True}[path.started]
            version, attempt, fence = version + len(path.hops), attempt + path.opens, fence + path.grants
            expected = (state, category, outcome, version, attempt, fence, at.lease, at.live, begun)
            assert told(database, unit) == expected, path
    events = database.rows(
        "SELECT source, trigger, target, lease_from, lease_to, name FROM event WHERE unit = :unit ORDER BY version",
        {"unit": unit},
    )
    hops = [hop for path in way for hop in path.hops]
    assert events == [
        (hop.source or None, hop.trigger, hop.target, hop.lease_from, hop.lease_to, hop.name) for hop in hops
    ]
