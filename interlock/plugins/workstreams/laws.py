"""What is true of workstreams, their tasks and their maps at every commit."""

from collections.abc import Iterator

import msgspec

from interlock.kernel.lifecycle import Category
from interlock.plugins.workstreams.maps import MAPPED, MapNote, name_item
from interlock.plugins.workstreams.options import NAME, decode_stream_options
from interlock.plugins.workstreams.queries import (
    find_not_completed,
    find_not_failed,
    is_needed_by_name,
    read_expecting,
    read_maps,
    read_needs_of_replaced,
    read_replacements,
)
from interlock.store.connection import Connection

LOST = (Category.FAILURE, Category.CANCELLED)


def find_completed_without_tasks(connection: Connection) -> Iterator[tuple[int, str]]:
    """Workstreams that are completed although a task of them that counts is not."""
    for stream, task, state in find_not_completed(connection):
        yield stream, f"it is completed, and its task {task} is {state}"


def find_outlived_failures(connection: Connection) -> Iterator[tuple[int, str]]:
    """Workstreams that go on, or were cancelled, although a critical task of them had failed."""
    for stream, state, task in find_not_failed(connection):
        yield stream, f"it is {state}, and its critical task {task} has failed"


def find_wrong_plans(connection: Connection) -> Iterator[tuple[int, str]]:
    """Workstreams that wait although all tasks are there, and those that went on although some are missing."""
    for unit, version, total, outcome, policy in read_expecting(connection, NAME):
        own = decode_stream_options(policy)
        if own is None or own.expects is None:
            continue
        is_planned = version > 1  # its first move is the plan, or a cancel
        if not is_planned and total >= own.expects:
            yield unit, f"it expects {own.expects} tasks and has {total}, and it has no plan"
        if is_planned and outcome != Category.CANCELLED and total < own.expects:
            yield unit, f"it expects {own.expects} tasks and has {total}, and it has a plan"


def find_wrong_replacements(connection: Connection) -> Iterator[tuple[int, str]]:
    """Tasks whose place was taken although they had not failed, or that something still waits for."""
    for old, fresh, outcome, parent, other in read_replacements(connection):
        if outcome not in LOST:
            yield old, f"unit {fresh} took its place, and its outcome is {outcome}"
        if parent != other:
            yield old, f"unit {fresh} took its place below another parent"
    for unit, need in read_needs_of_replaced(connection):
        yield unit, f"it waits for unit {need}, whose place another one took"


def find_wrong_maps(connection: Connection) -> Iterator[tuple[int, str]]:
    """Maps that lack a task of theirs, or that are completed with more or fewer outputs than tasks."""
    for unit, outcome, name, payload, result in read_maps(connection, MAPPED):
        count = msgspec.json.decode(payload, type=MapNote).items
        if count and not is_needed_by_name(connection, unit, name_item(name, count - 1)):
            yield unit, f"it has {count} tasks, and it does not need '{name_item(name, count - 1)}'"
        if outcome == Category.SUCCESS and len(msgspec.json.decode(result or "null") or ()) != count:
            yield unit, f"it has {count} tasks, and other outputs: {(result or '')[:40]}"


LAWS = {
    "a completed workstream has completed all its tasks": find_completed_without_tasks,
    "a critical task that fails fails its workstream": find_outlived_failures,
    "a workstream is planned by the last task that it expects": find_wrong_plans,
    "a task that was replaced has ended, and nothing waits for it": find_wrong_replacements,
    "a map has a task and an output for each element": find_wrong_maps,
}
