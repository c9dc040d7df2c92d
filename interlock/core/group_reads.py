"""Read what all commands of a group need in one query."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from interlock.kernel.commands import RECORDED_ONCE, Command, Record
from interlock.store.cache import EngineCache
from interlock.store.prefetch import Queries, declare_held, declare_notes
from interlock.store.queries.for_verbs import load_notes
from interlock.store.query import BoundQuery
from interlock.store.unit_of_work import UnitOfWork

Declare = Callable[[EngineCache, Sequence[Any]], Iterable[BoundQuery[Any]]]
IDS_MAX = 2**63 - 1
# By the class of a command: the queries that several of them will run first.
Prefetches = Mapping[type[Command[Any]], Declare]


def merge_prefetches(*several: Prefetches) -> Prefetches:
    """What the core and the plugins declare ahead; for a command of which several do, all of it."""
    merged: dict[type[Command[Any]], Declare] = {}
    for some in several:
        for kind, declare in some.items():
            merged[kind] = partial(declare_both, merged[kind], declare) if kind in merged else declare
    return merged


def declare_both(first: Declare, second: Declare, cache: EngineCache, commands: Sequence[Any]) -> list[Any]:
    """Declares the queries of two functions."""
    return [*first(cache, commands), *second(cache, commands)]


def declare_reads(reads: Prefetches, cache: EngineCache, commands: Sequence[Command[Any]]) -> list[BoundQuery[Any]]:
    """The queries that commands like the first declare ahead."""
    kind = type(commands[0])
    if kind not in reads:
        return []
    if kind is Record and any(type(command) is not kind for command in commands):
        return []  # what others in the group name is read with what these do
    return list(dict.fromkeys(reads[kind](cache, [command for command in commands if type(command) is kind])))


def record_reads(cache: EngineCache, records: Sequence[Record]) -> Queries:
    """The units of these holders, and whether they have recorded this before."""
    ids = sorted({unit for record in records for unit in record.held_units()})
    if ids and ids[0] > 0 and ids[-1] <= IDS_MAX:
        yield from declare_held(cache, ids)
        for (kind, name), units in find_recorded(records).items():
            if name.isprintable():  # else the verb says what is wrong with it
                yield from declare_notes(kind, name, sorted(units))


def find_recorded(commands: Sequence[Command[Any]]) -> dict[tuple[str, str], set[int]]:
    """The units for which something is recorded that is kept once, by its kind and name."""
    units: dict[tuple[str, str], set[int]] = {}
    for command in commands:
        if isinstance(command, Record) and command.kind in RECORDED_ONCE:
            units.setdefault((command.kind, command.name), set()).update(command.held_units())
    return units


def load_for_group(tx: UnitOfWork, commands: Sequence[Command[Any]]) -> None:
    """Loads what the commands of a group will ask of the database, of all of them at once."""
    tx.load_units({unit for command in commands for unit in command.held_units()})
    for (kind, name), units in find_recorded(commands).items():
        load_notes(tx, kind, name, units)
