"""Every trigger of every lifecycle, driven along its listed paths by the database itself.

A unit is put wherever acts can put it, step by step from its birth, and from there it takes each path that begins there.
The database then says of it what the path says.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.paths import BORN, Path, Paths, Step, enumerate_paths
from tests.store.databases import Connection, fresh
from tests.store.raw_acts import LEASES, LIFECYCLES, bear, transaction, write_act

UNDER_LEASE = (Category.HELD, Category.ACTIVE, Category.CLOSING)
NAMES = sorted(LIFECYCLES.keys() - {"lease"})


class Place(NamedTuple):
    """Where a unit can be: its state, that of its last lease, and whether that one is live."""

    state: str
    lease: str | None
    live: bool


NOWHERE = Place(BORN, None, live=False)


def goes(lifecycle: Lifecycle, path: Path, at: Place) -> bool:
    """Whether a unit that is there can take this path."""
    if path.source != at.state or (path.grants and at.live):
        return False
    if path.lease_from is not None and not (at.live and path.lease_from == at.lease):
        return False
    stays = not path.lease_ends and at.live  # what is neither held nor at work is under no lease
    return not stays or (path.category or lifecycle.category(at.state)) in UNDER_LEASE


def behind(path: Path, at: Place) -> Place:
    """Where the path leaves it."""
    live = not path.lease_ends and (bool(path.grants) or at.live)
    return Place(path.target, path.lease_to or at.lease, live)


def routes(lifecycle: Lifecycle, paths: list[Path]) -> dict[Place, list[Path]]:
    """Every place, and the shortest way to it."""
    found: dict[Place, list[Path]] = {NOWHERE: []}
    waiting = deque([NOWHERE])
    while waiting:
        at = waiting.popleft()
        for path in paths:
            if goes(lifecycle, path, at) and behind(path, at) not in found:
                found[behind(path, at)] = [*found[at], path]
                waiting.append(behind(path, at))
    return found


def test_every_move_of_every_lifecycle_is_a_listed_path() -> None:
    paths = Paths(LIFECYCLES)
    for name in NAMES:
        listed = {path.id for path in enumerate_paths(LIFECYCLES[name], LEASES)}
        for source, trigger in LIFECYCLES[name].moves:
            assert paths.find(name, source or BORN, None, (Step(trigger),)).id in listed, (name, source, trigger)


@pytest.fixture(scope="module", params=["sqlite memory", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    server = request.getfixturevalue("running_postgres") if request.param == "postgres" else ""
    with fresh(request.param, tmp_path_factory.mktemp("paths"), server) as connection:
        yield connection


@pytest.mark.parametrize("name", NAMES)
def test_units_take_every_path(database: Connection, name: str) -> None:
    lifecycle = LIFECYCLES[name]
    paths = list({path.id: path for path in enumerate_paths(lifecycle, LEASES)}.values())
    ways = [[*way, path] for at, way in routes(lifecycle, paths).items() for path in paths if goes(lifecycle, path, at)]
    assert {path.id for path in paths} == {way[-1].id for way in ways}
    hops = {hop for way in ways for path in way for hop in path.hops}
    assert set(lifecycle.moves) <= {(hop.source or None, hop.trigger) for hop in hops}
    drive(database, dict(enumerate(ways, start=NAMES.index(name) * 100_000 + 1)))


def drive(database: Connection, ways: dict[int, list[Path]]) -> None:
    """Units are born and take their paths; the database says the same of each of them as the paths do."""
    with transaction(database):
        for length in range(1, max(map(len, ways.values())) + 1):
            together: dict[tuple[int, ...], list[int]] = {}  # units that have come the same way
            for unit, way in ways.items():
                if len(way) >= length:
                    together.setdefault(tuple(path.id for path in way[:length]), []).append(unit)
            for units in together.values():
                path = ways[units[0]][length - 1]
                if length == 1:
                    bear(database, *units, lifecycle=path.lifecycle, by=path.hops[0].trigger)
                else:
                    write_act(database, path, *units)
    columns = "state, category, outcome, version, attempt, fence, lease, lease_id IS NOT NULL, started_at IS NOT NULL"
    rows = database.rows(f"SELECT id, {columns} FROM unit WHERE id {{ids}}", {"ids": list(ways)})
    assert {row[0]: (*row[1:8], bool(row[8]), bool(row[9])) for row in rows} == {
        unit: expected(way) for unit, way in ways.items()
    }
    told: dict[int, list[tuple[str | None, ...]]] = {}
    columns = "source, trigger, target, lease_from, lease_to, name"
    events = f"SELECT unit, {columns} FROM event WHERE unit {{ids}} ORDER BY unit, version"
    for unit, *hop in database.rows(events, {"ids": list(ways)}):
        told.setdefault(unit, []).append(tuple(hop))
    assert told == {
        unit: [
            (hop.source or None, hop.trigger, hop.target, hop.lease_from, hop.lease_to, hop.name)
            for path in way
            for hop in path.hops
        ]
        for unit, way in ways.items()
    }


def expected(way: list[Path]) -> tuple[Any, ...]:
    """What paths make of a unit, one after the other."""
    category, outcome, version, attempt, fence, at, begun = "", None, 0, 1, 0, NOWHERE, False
    for path in way:
        at, category = behind(path, at), path.category or category
        outcome = {0: None, 1: category, 2: outcome}[path.outcome]
        begun = {0: begun, 1: True, 2: False, 3: True}[path.started]
        version, attempt, fence = version + len(path.hops), attempt + path.opens, fence + path.grants
    return at.state, category, outcome, version, attempt, fence, at.lease, at.live, begun
