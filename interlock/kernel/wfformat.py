"""Read WfFormat (versions 1.3 to 1.6), the JSON of published workflow recordings, as a graph of tasks. Pure.

Up to 1.4 a workflow has one list of tasks, which name each other. From 1.5 on what is to be done (`specification`) and
what was (`execution`) are two lists, and tasks have ids. A need may be told by either end: by `parents` of the one task
or by `children` of the other. Tasks may come in any order. What is wrong is told with its path in the file.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import msgspec

from interlock.kernel.errors import InterlockError
from interlock.kernel.plan import make_plan

VERSIONS = ("1.3", "1.4", "1.5", "1.6")
SPLIT_FROM = "1.5"  # the first version with a specification and an execution
TASKS_MAX = 1_000_000
NAME_MAX = 200
MILLION = 1_000_000
LONGEST_SECONDS = 100 * 366 * 86_400


class RecordedTask(msgspec.Struct, frozen=True):
    """A task of a recorded workflow."""

    name: str
    needs: tuple[str, ...]
    lasted_us: int


class RecordedWorkflow(msgspec.Struct, frozen=True):
    """A recorded workflow: its tasks, each behind those that it needs."""

    name: str
    version: str
    tasks: tuple[RecordedTask, ...]


def read_wfformat(text: bytes | str, scale: float = 1.0) -> RecordedWorkflow:
    """Read a file of WfFormat.

    Parameters:
        scale: by what the recorded times are multiplied; 0: tasks take no time.

    Raises:
        InterlockError: it is no such file, or something in it is wrong; the text names the path and what is allowed.
    """
    if not isfinite(scale) or not 0 <= scale <= 1_000:
        raise InterlockError(f"scale = {scale!r} is not allowed; allowed is a number from 0 to 1000")
    document = decode_document(text)
    version = read_name(document, "schemaVersion", "")
    if version not in VERSIONS:
        raise InterlockError(f"schemaVersion = '{version[:40]}' is not allowed; allowed are {', '.join(VERSIONS)}")
    name = read_name(document, "name", "")
    workflow = read_object(document, "workflow", "")
    rows = list(list_recorded_tasks(workflow, version))
    keys = name_tasks(rows, by_id=version >= SPLIT_FROM)
    seconds = read_execution(workflow, keys) if version >= SPLIT_FROM else {}
    needs = read_needs(rows, keys)
    lasted = {
        key: scale_seconds(seconds.get(key) or (read_seconds(row, path) if version < SPLIT_FROM else 0.0), scale)
        for (path, row), key in zip(rows, keys, strict=True)
    }
    order = make_plan(needs).order
    return RecordedWorkflow(name, version, tuple(RecordedTask(key, needs[key], lasted[key]) for key in order))


def decode_document(text: bytes | str) -> dict[str, Any]:
    """Decodes the text of a document."""
    try:
        document = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise InterlockError(f"this is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise InterlockError("this is no WfFormat: allowed is an object with name, schemaVersion and workflow")
    return document


Rows = Sequence[tuple[str, dict[str, Any]]]


def list_recorded_tasks(workflow: Mapping[str, Any], version: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tasks of a workflow, each with its path."""
    if version >= SPLIT_FROM:
        return list_objects(read_object(workflow, "specification", "workflow."), "workflow.specification.tasks")
    return list_objects(workflow, "workflow.tasks")


def list_objects(above: Mapping[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a list that has at least one."""
    rows = above.get(path.rpartition(".")[2])
    if not isinstance(rows, list) or not rows:
        raise InterlockError(f"{path} is {describe_value(rows)}; allowed is a list of at least one task")
    if len(rows) > TASKS_MAX:
        raise InterlockError(f"{path} has {len(rows):,} tasks; allowed are {TASKS_MAX:,}")
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InterlockError(f"{path}[{place}] is {describe_value(row)}; allowed is an object")
        yield f"{path}[{place}]", row


def name_tasks(rows: Rows, *, by_id: bool) -> list[str]:
    """What tasks are called: by their ids, or before there were any by their names.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    field = "id" if by_id else "name"
    keys, paths = [], dict[str, str]()
    for path, row in rows:
        key = read_name(row, field, f"{path}.")
        if key in paths:
            raise InterlockError(f"{path}.{field} = '{key}' is that of {paths[key]} too; each task has its own")
        paths[key] = path
        keys.append(key)
    return keys


def read_needs(rows: Rows, keys: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """By task: what it needs, told by either end.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    known: dict[str, str] = {key: key for key in keys}
    for (_, row), key in zip(rows, keys, strict=True):
        if isinstance(other := row.get("id"), str):
            known.setdefault(other, key)
    needs: dict[str, dict[str, None]] = {key: {} for key in keys}
    for (path, row), key in zip(rows, keys, strict=True):
        for parent in read_references(row, "parents", path, known):
            needs[key][parent] = None
        for child in read_references(row, "children", path, known):
            needs[child][key] = None
    return {key: tuple(some) for key, some in needs.items()}


def read_references(row: Mapping[str, Any], field: str, path: str, known: Mapping[str, str]) -> Iterator[str]:
    """Reads references from one task to others."""
    references = row.get(field, [])
    if not isinstance(references, list):
        raise InterlockError(f"{path}.{field} is {describe_value(references)}; allowed is a list of tasks")
    for place, reference in enumerate(references):
        if not isinstance(reference, str) or reference not in known:
            raise InterlockError(
                f"{path}.{field}[{place}] is {describe_value(reference)}, and no task is called so; "
                f"allowed are tasks of this file, such as '{next(iter(known))}'"
            )
        yield known[reference]


def read_execution(workflow: Mapping[str, Any], keys: Sequence[str]) -> dict[str, float]:
    """By task: how long it took, in seconds. A workflow that was never executed has none.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if "execution" not in workflow:
        return {}
    known = set(keys)
    seconds: dict[str, float] = {}
    for path, row in list_objects(read_object(workflow, "execution", "workflow."), "workflow.execution.tasks"):
        key = read_name(row, "id", f"{path}.")
        if key not in known:
            raise InterlockError(f"{path}.id = '{key}' is none of workflow.specification.tasks")
        seconds[key] = read_seconds(row, path)
    return seconds


def read_seconds(row: Mapping[str, Any], path: str) -> float:
    """How long a task took; 0 if it does not say. Version 1.3 has another word for it."""
    field = "runtimeInSeconds" if "runtimeInSeconds" in row else "runtime"
    value = row.get(field)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_SECONDS:
        raise InterlockError(f"{path}.{field} is {describe_value(value)}; allowed is a number of seconds from 0 on")
    return float(value)


def scale_seconds(seconds: float, scale: float) -> int:
    """Recorded seconds as microseconds."""
    return round(seconds * scale * MILLION)


def read_object(above: Mapping[str, Any], field: str, path: str) -> dict[str, Any]:
    """A member that is an object.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    value = above.get(field)
    if not isinstance(value, dict):
        raise InterlockError(f"{path}{field} is {describe_value(value)}; allowed is an object")
    return value


def read_name(above: Mapping[str, Any], field: str, path: str) -> str:
    """A text that names something.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    value = above.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= NAME_MAX or "\0" in value:
        raise InterlockError(f"{path}{field} is {describe_value(value)}; allowed is text of 1 to {NAME_MAX} characters")
    return value


def describe_value(value: Any) -> str:
    """A value as a message shows it."""
    if value is None:
        return "missing"
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
