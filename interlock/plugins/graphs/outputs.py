"""The results of what a unit needs, as its holder gets them: by name, as many as fit; the others when it asks.

A step of a run of steps is no business of this plugin: it gets what all steps before it came to.
"""

from collections.abc import Sequence
from typing import Any

from interlock.core.leases import apply_each
from interlock.core.validation import check_name
from interlock.kernel.commands import ReadOutput
from interlock.kernel.errors import Stale, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Unit
from interlock.store.queries.places import ResultOfNeed, list_results_of_needs, read_results_of
from interlock.store.unit_of_work import UnitOfWork

OUTPUTS_MAX = 1_000  # results that are handed over with a lease
BYTES_MAX = 1 << 20  # of all of them together
NOTHING = "null"


def hand_over_needed(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, Any]]:
    """What a worker is told of those of these units that need others: the results of these, as far as they fit."""
    owners = {find_owner(tx, unit): unit.id for unit in units}
    chosen: dict[int, list[ResultOfNeed]] = {}
    for owner, results in list_results_of_needs(tx, sorted(owners)).items():
        chosen[owner] = choose_fitting(results)
    texts = read_texts(tx, [result for results in chosen.values() for result in results])
    return {owners[owner]: {"needed": take_bytes(name_results(results), texts)} for owner, results in chosen.items()}


def read_texts(tx: UnitOfWork, results: Sequence[ResultOfNeed]) -> dict[int, str]:
    """The results themselves, by unit."""
    following = {name for name, lifecycle in tx.lifecycles.items() if lifecycle.options.follows}
    followers = {result.needs for result in results if result.lifecycle in following}
    return read_results_of(tx, sorted({result.needs for result in results}), sorted(followers))


def find_owner(tx: UnitOfWork, unit: Unit) -> int:
    """The unit that has the needs: an attempt that another unit follows has none of its own."""
    return unit.parent if unit.lifecycle in tx.paths.followed and unit.parent is not None else unit.id


def choose_fitting(results: Sequence[ResultOfNeed]) -> list[ResultOfNeed]:
    """The first results, as many as may be handed over by their number and their lengths."""
    chosen: list[ResultOfNeed] = []
    length = 0
    for result in results:
        if len(chosen) < OUTPUTS_MAX and length + result.length <= BYTES_MAX:
            chosen.append(result)
            length += result.length
    return chosen


def name_results(results: Sequence[ResultOfNeed]) -> dict[str, int]:
    """The units by the names that they have in their parents; one without a name, or with another's, by its id."""
    named: dict[str, int] = {}
    for result in results:
        called = format_id(result.lifecycle, result.needs)
        named[called if result.name is None or result.name in named else result.name] = result.needs
    return named


def take_bytes(named: dict[str, int], texts: dict[int, str]) -> tuple[tuple[str, str], ...]:
    """The names with their results, as far as these fit: what was counted before were characters."""
    taken, length = [], 0
    for name, unit in named.items():
        text = texts.get(unit, NOTHING)
        length += len(text.encode())
        if length <= BYTES_MAX:
            taken.append((name, text))
    return tuple(taken)


def read_output(tx: UnitOfWork, command: ReadOutput) -> str:
    """The result of what a unit needs, by name or id.

    Raises:
        Stale: whoever asks does not hold the unit.
        Unknown: the unit needs nothing of that name that has succeeded.
    """
    check_name("name", command.name)
    (answer,) = apply_each(tx, command, (command.held,), lambda unit, index: None)
    if not answer.accepted:
        raise Stale(answer.why)
    owner = find_owner(tx, tx.rows.units[command.held.unit])
    results = list_results_of_needs(tx, [owner]).get(owner, [])
    unit = name_results(results).get(command.name)
    if unit is None:
        raise Unknown(f"this job needs no '{command.name}' that has succeeded")
    return read_texts(tx, [result for result in results if result.needs == unit]).get(unit, NOTHING)
