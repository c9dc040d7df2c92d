"""Notes: heartbeats, progress, votes and other records that change no state and no version.

Verbose notes are kept for a while, which each tenant may choose. What it chose is read again every few seconds, not
for every note: a beat shall cost no question.
"""

from typing import Any

import msgspec

from interlock.core.stamps import Stamp
from interlock.core.tx_state import CancelRequests
from interlock.kernel.commands import Command, LeaseRef, LeaseStatus
from interlock.kernel.metrics import CONFLICTS, STALE
from interlock.kernel.rows import Note, Unit
from interlock.store.queries.for_verbs import find_cancel_requests, has_note
from interlock.store.queries.tenants import read_tenant
from interlock.store.unit_of_work import UnitOfWork

DAY_US = 86_400_000_000
BEATS_US = 2 * DAY_US  # how long beats are kept, unless their tenant says otherwise
VERBOSE_US = 14 * DAY_US  # the same of other verbose things
CANCEL_REQUESTED = "cancel_requested"  # the kind of note that says who asked a unit to stop, and why
TRACEBACK = "traceback"  # the kind of note that has the traceback of an attempt, named by its number
CANCEL_REQUEST = "asked"  # in the payload of a cancel: who asked for it, why and when
READ_AGAIN_US = 5_000_000


def beats_kept_us(tx: UnitOfWork) -> int:
    """How long the beats of this tenant's workers are kept, and who was refused."""
    return read_keep_times(tx)[0]


def verbose_kept_us(tx: UnitOfWork) -> int:
    """How long the progress and the logs of this tenant's units are kept, and the instants that a schedule skipped."""
    return read_keep_times(tx)[1]


def read_keep_times(tx: UnitOfWork) -> tuple[int, int]:
    """Reads for how long notes of the tenant are kept: beats, and verbose ones."""
    known = tx.cache.note_terms.get(tx.tenant)
    if known is None or not known[0] <= tx.now < known[0] + READ_AGAIN_US:
        row = read_tenant(tx.connection, tx.tenant)
        beats_us, verbose_us = (row.keep_beats_us, row.keep_verbose_us) if row else (None, None)
        known = tx.cache.note_terms[tx.tenant] = (tx.now, beats_us or BEATS_US, verbose_us or VERBOSE_US)
    return known[1:]


def note(
    tx: UnitOfWork, unit: int, kind: str, payload: str, *, name: str = "", fence: int = 0, keep_us: int = 0
) -> None:
    """A note of a unit is kept: for a while, or without `keep_us` for as long as the unit."""
    expires = tx.now + keep_us if keep_us else None
    tx.add(
        Note(
            id=tx.ids.take(), tenant=tx.tenant, unit=unit, kind=kind, name=name, fence=fence, at=tx.now,
            expires=expires, payload=payload,
        )
    )  # fmt: skip


def note_refusal(tx: UnitOfWork, command: Command[Any], ref: LeaseRef, answer: LeaseStatus) -> None:
    """Keeps for two days who was refused and why, the same refusal once, and counts those that were too late."""
    verb = type(command).__name__
    name = f"{ref.fence}.{verb}.{answer.why}"
    if not has_note(tx, ref.unit, "refused", name):
        text = msgspec.json.encode({"by": command.actor, "verb": verb, "why": answer.why}).decode()
        note(tx, ref.unit, "refused", text, name=name, fence=ref.fence, keep_us=beats_kept_us(tx))
    if answer.why in STALE:
        tx.counters.metrics[tx.tenant, CONFLICTS, verb.lower()] += 1
        for hook in tx.hooks.on_stale:
            hook(tx, command, ref)


def describe_cancel(tx: UnitOfWork, unit: Unit, stamp: Stamp, payload: Any) -> Any:
    """The payload of a cancel: who asked for it, and what plugins add."""
    payload = add_asker(tx, unit, stamp.actor, stamp.reason, payload)
    if tx.hooks.before_cancel:
        payload = dict(payload or {})
        for hook in tx.hooks.before_cancel:
            hook(tx, unit, stamp.reason or f"by {stamp.actor}", payload)
    return payload


def add_asker(tx: UnitOfWork, unit: Unit, actor: str, reason: str, payload: Any) -> Any:
    """The payload of a cancel, which says who asked for it and why if its event (by `actor`) does not."""
    requests = tx.state(CancelRequests).by_unit
    if unit.id not in requests and unit.asked_at is not None:
        requests |= find_cancel_requests(tx, [unit.id])
    request = requests.get(unit.id)
    if request is None or (request["by"], request["reason"]) == (actor, reason):
        return payload
    return {**(payload or {}), CANCEL_REQUEST: request}
