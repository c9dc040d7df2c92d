"""What is true of workstreams, their tasks and their maps at every commit."""

from collections.abc import Iterator

import msgspec

from interlock.plugins.workstreams.maps import MAPPED, MapNote, name_item
from interlock.plugins.workstreams.options import NAME, options_in
from interlock.store.connection import Connection

# A task that another one replaced has `replaced_by` in its body, and that one names it as `retry_of`.
COUNTS = "NOT EXISTS (SELECT 1 FROM body AS fresh WHERE fresh.unit = body.replaced_by AND fresh.retry_of = body.unit)"
NOT_COMPLETED = f"""
SELECT stream.id, unit.id, unit.state FROM unit AS stream JOIN unit ON unit.parent = stream.id
JOIN body ON body.unit = unit.id
WHERE stream.lifecycle = 'workstream' AND stream.outcome = 'success' AND unit.lifecycle = 'task'
AND coalesce(unit.outcome, '') <> 'success' AND {COUNTS}
"""
EXPECTING = """
SELECT unit.id, unit.state, unit.total, unit.outcome, body.policy FROM unit JOIN body ON body.unit = unit.id
WHERE unit.lifecycle = 'workstream' AND body.policy LIKE :named
"""
REPLACED = """
SELECT old.unit, old.replaced_by, was.outcome, was.parent, fresh.retry_of, unit.parent
FROM body AS fresh JOIN unit ON unit.id = fresh.unit JOIN body AS old ON old.unit = fresh.retry_of
JOIN unit AS was ON was.id = old.unit
WHERE fresh.retry_of IS NOT NULL AND old.replaced_by = fresh.unit
"""
STILL_NEEDED = """
SELECT need.unit, need.needs FROM body AS fresh JOIN body AS old ON old.unit = fresh.retry_of
JOIN need ON need.needs = old.unit AND need.by_end = 0 JOIN unit ON unit.id = need.unit
WHERE fresh.retry_of IS NOT NULL AND old.replaced_by = fresh.unit AND unit.outcome IS NULL
"""
MAPS = """
SELECT unit.id, unit.parent, unit.outcome, place.name, note.payload, body.result FROM note
JOIN unit ON unit.id = note.unit JOIN body ON body.unit = unit.id JOIN place ON place.unit = unit.id
WHERE note.kind = :kind
"""
ITEMS = "SELECT count(*) FROM place JOIN need ON need.needs = place.unit AND need.unit = :unit WHERE place.name = :name"


def find_completed_without_tasks(connection: Connection) -> Iterator[tuple[int, str]]:
    """Workstreams that are completed although a task of them that counts is not."""
    for stream, task, state in connection.rows(NOT_COMPLETED):
        yield stream, f"it is completed, and its task {task} is {state}"


def find_wrong_plans(connection: Connection) -> Iterator[tuple[int, str]]:
    """Workstreams that wait although all tasks are there, and those that went on although some are missing."""
    for unit, state, total, outcome, policy in connection.rows(EXPECTING, {"named": f"%{NAME}%expects%"}):
        own = options_in(policy)
        if own is None or own.expects is None:
            continue
        if state == "planned" and total >= own.expects:
            yield unit, f"it expects {own.expects} tasks and has {total}, and it is not planned"
        if state != "planned" and outcome != "cancelled" and total < own.expects:
            yield unit, f"it expects {own.expects} tasks and has {total}, and it is {state}"


def find_wrong_replacements(connection: Connection) -> Iterator[tuple[int, str]]:
    """Tasks whose place was taken although they had not failed, or that something still waits for."""
    for old, fresh, outcome, parent, _, other in connection.rows(REPLACED):
        if outcome not in ("failure", "cancelled"):
            yield old, f"unit {fresh} took its place, and its outcome is {outcome}"
        if parent != other:
            yield old, f"unit {fresh} took its place below another parent"
    for unit, need in connection.rows(STILL_NEEDED):
        yield unit, f"it waits for unit {need}, whose place another one took"


def find_wrong_maps(connection: Connection) -> Iterator[tuple[int, str]]:
    """Maps that lack a task of theirs, or that are completed with more or fewer outputs than tasks."""
    for unit, _, outcome, name, payload, result in connection.rows(MAPS, {"kind": MAPPED}):
        count = msgspec.json.decode(payload, type=MapNote).items
        if count and not connection.rows(ITEMS, {"unit": unit, "name": name_item(name, count - 1)})[0][0]:
            yield unit, f"it has {count} tasks, and it does not need '{name_item(name, count - 1)}'"
        if outcome == "success" and len(msgspec.json.decode(result or "null") or ()) != count:
            yield unit, f"it has {count} tasks, and other outputs: {(result or '')[:40]}"


LAWS = {
    "a completed workstream has completed all its tasks": find_completed_without_tasks,
    "a workstream is planned by the last task that it expects": find_wrong_plans,
    "a task that was replaced has ended, and nothing waits for it": find_wrong_replacements,
    "a map has a task and an output for each element": find_wrong_maps,
}
