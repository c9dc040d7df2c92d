"""Plain units: from their grant and success nothing follows for other units.

`unit.plain` says so, and the fast path (`fast_path.py`) asks for it under the lock. It is decided at the birth of a
unit, and ends when somebody attaches something to the unit: a child, or another unit that needs it. It never comes
back. A unit that is not plain is decided row by row, so a wrong 0 costs time; a wrong 1 would skip what follows, and is
found by the audit ("nothing follows from what is plain").
"""

from collections.abc import Sequence

from interlock.core.advance import change
from interlock.core.effective_policy import policy_in
from interlock.core.places import Prerequisite
from interlock.kernel import policy, timing
from interlock.kernel.commands import Policy, Work
from interlock.kernel.errors import Refused
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.rows import Unit
from interlock.store.unit_of_work import UnitOfWork

LENGTHS = ("attempts", "timeout_us", "cancel_timeout_us", "backoff_us", "backoff_cap_us", "keep_us", "losses")
# What work may say of itself and be plain: how often and how long it may be tried, and how long it is kept.
HARMLESS = frozenset((*LENGTHS, "exhausted", "queue_timeout_us"))
KINDS_MAX = 1_000  # that are remembered


def is_born_plain(
    tx: UnitOfWork, work: Work, rules: str, parent: Unit | None, needs: Sequence[Prerequisite]
) -> bool:  # fmt: skip
    """Whether a unit that is made of this work, under these stored rules, is plain."""
    if parent is not None or needs or work.retry_of is not None or not work.decides:
        return False
    known, kind = tx.cache.state(PlainKinds).answers, (work.lifecycle, rules)
    if (is_plain := known.get(kind)) is None:
        if len(known) >= KINDS_MAX:
            known.clear()
        is_plain = known[kind] = is_plain_kind(tx, tx.lifecycles[work.lifecycle], policy_in(rules))
    return is_plain and all(hook(work) for hook in tx.hooks.is_plain)


class PlainKinds:
    """Whether units are plain by their lifecycle and their stored rules, for those that an engine has lately met."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], bool] = {}


def is_plain_kind(tx: UnitOfWork, lifecycle: Lifecycle, own: Policy) -> bool:
    """Whether units of a lifecycle with such rules may be plain."""
    rules = {name for name in own.__struct_fields__ if getattr(own, name) != getattr(NO_RULES, name)}
    return not rules - HARMLESS and lifecycle.name not in tx.paths.followed and has_plain_grant(lifecycle, own)


NO_RULES = Policy()


def has_plain_grant(lifecycle: Lifecycle, own: Policy) -> bool:
    """Whether a worker may have a unit as soon as it is born, and no clock runs between its grant and its start."""
    state = lifecycle.birth.path[-1]
    if lifecycle.options.lease is None or lifecycle.options.follows or lifecycle.category(state) is not Category.READY:
        return False
    try:
        trigger = policy.choose(lifecycle, state, "claim")
    except Refused:
        return False
    return timing.time_limit(lifecycle, lifecycle.move(state, trigger).path[-1], own) is None


def attach_to(tx: UnitOfWork, unit: Unit) -> None:
    """Something is attached to a unit, so that more follows from its moves than its own events."""
    if unit.plain:
        change(tx, unit, plain=0)
