"""Previews of bulk actions: what would be changed, in groups, and what is left out and why."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from interlock.client.bulk_responses import BulkGroupResponse, LeftOutResponse
from interlock.client.durations import format_time
from interlock.kernel.api_keys import allows
from interlock.kernel.errors import InterlockError, TooSlow
from interlock.kernel.ids import format_id
from interlock.server.operations import Request
from interlock.store.queries.dead_letters import DeadLetter, read_dead_letters
from interlock.store.queries.lists import UnitRef, amount, read_unit_facts
from interlock.store.queries.views import Filter

GROUPS_MOST = 100  # that a preview names, the largest first
ERROR_MOST = 200  # characters of an error that tell one group from another
TOGETHER = 1_000  # units that are read at a time
REQUEUED_BEFORE = "was requeued before"
NOT_BOTH = "give ids or a filter, not both"


class UnitFacts(msgspec.Struct, frozen=True):
    """What tells one group of units from another, and how old a unit is."""

    unit: int
    lifecycle: str
    state: str
    task: str
    queue: str
    reason_code: str | None
    error_class: str | None
    error: str | None
    since: int  # microseconds

    @property
    def group(self) -> tuple[Any, ...]:
        return self.task, self.queue, self.state, self.reason_code, self.error_class, self.error


def group_units(facts: Iterable[UnitFacts]) -> list[BulkGroupResponse]:
    """Returns the groups of some units, the largest first: one reason or error is never counted with another."""
    groups: dict[tuple[Any, ...], list[UnitFacts]] = {}
    for fact in facts:
        groups.setdefault(fact.group, []).append(fact)
    made = []
    for members in groups.values():
        oldest = min(members, key=lambda fact: (fact.since, fact.unit))
        made.append(BulkGroupResponse(
            task=oldest.task, queue=oldest.queue, lifecycle=oldest.lifecycle, state=oldest.state,
            reason_code=oldest.reason_code, error_class=oldest.error_class, error=oldest.error, count=len(members),
            oldest=format_id(oldest.lifecycle, oldest.unit), oldest_at=format_time(oldest.since),
        ))  # fmt: skip
    return sorted(made, key=lambda group: (-group.count, group.task, group.error or ""))[:GROUPS_MOST]


async def describe_units(request: Request, units: Sequence[UnitRef]) -> list[BulkGroupResponse]:
    """Returns the groups of units by task, queue, state and the last error of each, to who may read."""
    if not allows(request.caller.scopes, "read"):
        return []
    facts: list[UnitFacts] = []
    for start in range(0, len(units), TOGETHER):
        ids = [unit.unit for unit in units[start : start + TOGETHER]]
        facts += [
            UnitFacts(unit, lifecycle, state, task, queue, None, None, get_first_line(error), created_at)
            for unit, lifecycle, state, task, queue, error, created_at in await request.read(read_unit_facts, ids)
        ]
    return group_units(facts)


def describe_dead_letters(request: Request, dead_letters: Iterable[DeadLetter]) -> list[BulkGroupResponse]:
    """Returns the groups of dead letters by task, queue, reason code, error class and error, to who may read."""
    if not allows(request.caller.scopes, "read"):
        return []
    facts = []
    for row in dead_letters:
        details = row.details
        facts.append(UnitFacts(
            row.unit, row.lifecycle, "", row.task, row.queue, details.get("reason_code"), details.get("error_class"),
            get_first_line(details.get("last_error")), row.at,
        ))  # fmt: skip
    return group_units(facts)


async def collect_dead(request: Request, units: Sequence[UnitRef]) -> list[DeadLetter]:
    """Returns those of these units that are dead letters, by id."""
    dead: dict[int, DeadLetter] = {}
    for start in range(0, len(units), TOGETHER):
        dead |= await request.read(read_dead_letters, [unit.unit for unit in units[start : start + TOGETHER]])
    return [dead[number] for number in sorted(dead)]


def get_first_line(error: str | None) -> str | None:
    """Returns the beginning of an error, by which errors are told apart."""
    return None if not error else error.strip().partition("\n")[0][:ERROR_MOST] or None


async def count_left_out(request: Request, why: str, filters: Filter) -> list[LeftOutResponse]:
    """Returns how many units a filter means that are left out; nothing if there are none."""
    try:
        total = await request.read(amount, filters)
    except TooSlow:
        return [LeftOutResponse(why, None)]
    return [LeftOutResponse(why, total.count, total.more)] if total.count else []


def list_left_out(counts: Mapping[str, int]) -> list[LeftOutResponse]:
    """Returns what is left out, by why."""
    return [LeftOutResponse(why, count) for why, count in counts.items() if count]


def refuse_both(ids: Sequence[str], filters: Filter) -> None:
    """Raises InterlockError if ids and a filter are given."""
    if ids and not filters.empty:
        raise InterlockError(NOT_BOTH)
