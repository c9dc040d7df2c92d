"""Maps: a task that is done once for each element of a list, which is known when its needs are met.

A map is a task of its workstream that runs nothing itself. When what it needs is completed, the list is read from the
output that it names (`fetch.images`), and in the same transaction a task is made for each element, called `resize[0]`,
`resize[1]` and so on. It needs what the map needs, and so it gets the outputs of that. The map needs them all. When the
last of them is completed the map is completed too, with their outputs as a list in the order of the elements; what
comes after it needs the map alone.

What is no list, or too long, is found out only now: the map fails, and says so.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from interlock.blobs.store import read_value
from interlock.core.advance import Stamp, advance
from interlock.core.effective_policy import policy_of
from interlock.core.notes import note
from interlock.core.outcomes import keep_result
from interlock.core.places import find_place, find_taken_name
from interlock.core.submit import create_ready, create_unit
from interlock.core.validation import encode_policy, policy_values
from interlock.kernel.commands import Work
from interlock.kernel.commits import take_value
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Need, Unit
from interlock.plugins.workstreams.copies import describe_work
from interlock.plugins.workstreams.options import MapOptions, WorkstreamOptions, encode_options, read_stream_options
from interlock.plugins.workstreams.queries import (
    DoneItem,
    read_done_items,
    read_named_results,
    read_needs,
    read_result,
)
from interlock.plugins.workstreams.tasks import FailureOutput, take_one
from interlock.store.flush import add_needs
from interlock.store.queries.for_verbs import has_note, read_notes
from interlock.store.unit_of_work import UnitOfWork

ITEMS_MAX = 10_000  # of one map
TAKES_ITEMS = "takes_items"  # the kind of note that names the workstream whose completed tasks a map takes over
MAPPED = "mapped"  # the kind of note that says how many tasks a map has made
LIMIT = "map:{}"  # the resource of which each task of a map takes one


class MapNote(msgspec.Struct, frozen=True):
    """How many tasks a map has made."""

    items: int


def run_map(tx: UnitOfWork, unit: Unit) -> bool:
    """A map whose needs are met makes its tasks; one whose tasks are completed has their outputs."""
    own = read_stream_options(tx.body(unit))
    if own is None or own.map is None or unit.parent is None:
        return False
    if has_note(tx, unit.id, MAPPED, ""):
        gather(tx, unit)
        return True
    workstream = tx.unit(unit.parent)
    if tx.lifecycle(workstream).settled(workstream.state):
        return True  # it has just ended, and cancels what is below it
    try:
        items = read_items(tx, unit, own.map)
        refuse_taken_names(tx, unit, len(items))
    except InterlockError as wrong:
        refuse(tx, unit, str(wrong), is_allowed=own.allow_failure)
        return True
    make_items(tx, unit, own, own.map, items)
    if not items:
        gather(tx, unit)
    return True


def refuse(tx: UnitOfWork, unit: Unit, error: str, *, is_allowed: bool) -> None:
    """A map that cannot be done has failed, and says why; one that may fail is completed with that."""
    if is_allowed:
        keep_result(tx, unit, msgspec.json.encode(FailureOutput(error)).decode())
        advance(tx, unit, "gather", Stamp("engine", "its failure is allowed"))
        return
    body = tx.body(unit)
    body.error = error
    tx.change(body)
    advance(tx, unit, "refuse", Stamp("engine", "there is nothing to map"), payload={"error": error})


def read_items(tx: UnitOfWork, unit: Unit, own: MapOptions) -> list[Any]:
    """The list that a map goes over.

    Raises:
        InterlockError: it is none, or too long.
    """
    name, _, path = own.over.partition(".")
    assert unit.parent is not None
    place = find_place(tx, tx.unit(unit.parent), name)
    text = None if place is None else read_result(tx, place.unit)
    value = msgspec.json.decode(read_value(tx.connection.blobs, unit.tenant, text)) if text is not None else None
    for part in path.split(".") if path else ():
        value = value.get(part) if isinstance(value, dict) else None
    value = take_value(value)  # a list that work on a repository returned
    if not isinstance(value, list):
        raise InterlockError(f"map: '{own.over}' is no list; allowed is a list of up to {ITEMS_MAX:,} elements")
    if len(value) > ITEMS_MAX:
        raise InterlockError(f"map: '{own.over}' has {len(value):,} elements; allowed are up to {ITEMS_MAX:,}")
    return value


def refuse_taken_names(tx: UnitOfWork, unit: Unit, count: int) -> None:
    """Raises InterlockError if another task has the name of an element."""
    name = policy_of(tx.body(unit)).step or ""
    taken = find_taken_name(tx, tx.unit(unit.parent or 0), [name_item(name, index) for index in range(count)])
    if taken is not None:
        raise InterlockError(f"map: another task is called '{taken}', as an element of '{name}' is")


def make_items(tx: UnitOfWork, unit: Unit, own: WorkstreamOptions, given: MapOptions, items: Sequence[Any]) -> None:
    """A task for each element; the map needs them all."""
    body = tx.body(unit)
    name, parent = policy_of(body).step or "", tx.unit(unit.parent or 0)
    options = encode_options(policy_of(body).options, msgspec.structs.replace(own, map=None, item_of=unit.id))
    needs = read_needs(tx, unit.id)  # all of them are met; an element gets their outputs as any task does
    base = msgspec.structs.replace(
        describe_work(tx, unit, body), options=options, parent=parent.id,
        after=tuple(need for need, by_end in needs.items() if not by_end),
        after_end=tuple(need for need, by_end in needs.items() if by_end),
    )  # fmt: skip
    if given.at_once is not None:
        base = take_one(base, LIMIT.format(unit.id), given.at_once)
    done = find_done(tx, unit, name, len(items))
    stamp = Stamp("engine", f"element of {name}", f"{format_id(unit.lifecycle, unit.id)}:{unit.version}")
    for index, item in enumerate(items):
        work = msgspec.structs.replace(base, step=name_item(name, index), input=make_input(body.input, given, item))
        old = done.get(name_item(name, index))
        if old is not None and old.input == work.input:
            task = take_over(tx, work, stamp, parent, old)
        else:
            task = create_ready(tx, work, stamp, parent, {})
        tx.add(Need(unit=unit.id, needs=task.id, tenant=unit.tenant))
    note(tx, unit.id, MAPPED, msgspec.json.encode(MapNote(len(items))).decode())
    if items:
        add_needs(tx, {unit.id: len(items)})


def find_done(tx: UnitOfWork, unit: Unit, name: str, count: int) -> dict[str, DoneItem]:
    """By name, the completed tasks that a map takes over from the workstream that its own does again."""
    notes = read_notes(tx, [unit.id], TAKES_ITEMS)
    if not notes:
        return {}
    return read_done_items(tx, int(notes[0].payload), [name_item(name, index) for index in range(count)])


def take_over(tx: UnitOfWork, work: Work, stamp: Stamp, parent: Unit, old: DoneItem) -> Unit:
    """The task for an element that was completed before: it is completed at once, with the same output."""
    for hook in tx.hooks.prepare_work:
        work = hook(tx, work, parent)
    work = msgspec.structs.replace(work, retry_of=old.unit)
    task = create_unit(tx, work, encode_policy(policy_values(work)), stamp, parent, ())
    keep_result(tx, task, old.result)
    advance(tx, task, "take_over", Stamp("engine", f"completed as {format_id(task.lifecycle, old.unit)}"))
    return task


def name_item(name: str, index: int) -> str:
    """The name of the task for an element."""
    return f"{name}[{index}]"


def make_input(text: str, own: MapOptions, item: Any) -> str:
    """The arguments of the task for an element: those of the map, and the element."""
    given = msgspec.json.decode(text)
    return msgspec.json.encode({**(given if isinstance(given, dict) else {}), own.argument: item}).decode()


def gather(tx: UnitOfWork, unit: Unit) -> None:
    """All tasks of a map are completed: it has their outputs, in order."""
    name, count = policy_of(tx.body(unit)).step or "", read_count(tx, unit)
    names = [name_item(name, index) for index in range(count)]
    results = read_named_results(tx, unit.parent or 0, names)
    outputs = [msgspec.Raw(read_output(tx, unit, results.get(each)).encode()) for each in names]
    keep_result(tx, unit, msgspec.json.encode(outputs).decode())
    advance(tx, unit, "gather", Stamp("engine", f"all {count} tasks of it are completed"))


def read_count(tx: UnitOfWork, unit: Unit) -> int:
    """How many tasks a map has made."""
    return sum(msgspec.json.decode(kept.payload, type=MapNote).items for kept in read_notes(tx, [unit.id], MAPPED))


def read_output(tx: UnitOfWork, unit: Unit, text: str | None) -> str:
    """The output of a task as JSON text."""
    return "null" if text is None else read_value(tx.connection.blobs, unit.tenant, text)
