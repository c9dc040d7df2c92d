"""Making units: one or many in one command, all of them or none."""

from collections.abc import Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from interlock.engine import words
from interlock.engine.advance import Stamp, advance, asked_by, derive
from interlock.engine.family import make_ready, planned
from interlock.engine.rates import set_rate
from interlock.engine.slots import SLOTS_MAX, set_limit
from interlock.engine.tenants import refuse_too_long
from interlock.kernel import policy
from interlock.kernel.commands import ON_DUPLICATE, Policy, Submit, Submitted, Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.rows import Body, Need, Unit
from interlock.store.finders import lane_for, with_key, with_keys
from interlock.store.tx import Tx

NO_LIMIT = "limit_key and limit belong together: name the key, and how many of it may run at a time"
NO_RATE = "rate_key, rate and rate_per_us belong together: name the key, how many of it may begin, and in which time"
OWN = tuple(name for name in Policy.__struct_fields__ if name in Work.__struct_fields__)
OWN_OF = attrgetter(*OWN)
ONCE = ("input", "key", "ref", "parent", "needs", "correlation", "trace")  # what units of one kind differ in
RULES_OF = attrgetter(*(name for name in Work.__struct_fields__ if name not in ONCE))
NUMBERS = (
    "attempts", "timeout_us", "queue_timeout_us", "expires_us", "backoff_us", "backoff_cap_us", "ttl_us", "beat_us",
    "sla_us", "limit", "quorum", "rate", "rate_per_us",
)  # fmt: skip


def submit(tx: Tx, command: Submit) -> list[Submitted]:
    """Every piece of work is a unit; one whose key is taken is the unit that has it."""
    for work in command.work:
        check_in(tx, work)
    keys: dict[str, list[str]] = {}
    for work in command.work:
        if work.key is not None:
            keys.setdefault(work.task, []).append(work.key)
    for task, names in keys.items():
        with_keys(tx, command.tenant, task, names)
    refuse_conflicts(tx, command)
    refuse_too_long(tx, command)
    refs: dict[str, int] = {}
    answers = []
    for work in command.work:
        answers.append(submit_one(tx, command, work, refs))
        if work.ref:
            refs[work.ref] = answers[-1].unit
    return answers


def check(lives: Mapping[str, Lifecycle], work: Work) -> None:
    """Work that could never be done is refused before anything is made of it."""
    if work.lifecycle not in lives:
        raise Unknown(f"there is no lifecycle '{work.lifecycle}'; there are {', '.join(lives)}")
    life = lives[work.lifecycle]
    if life.birth.trigger != "submit":
        raise InterlockError(f"a {work.lifecycle} is not submitted")
    words.named("task", work.task)
    words.named("queue", work.queue)
    for name in ("key", "mutex", "limit_key", "rate_key"):
        if getattr(work, name) is not None:
            words.named(name, getattr(work, name))
    words.capabilities(work.capabilities)
    for one in work.approvers:
        words.named("an approver", one)
    words.json_text("input", work.input)
    words.json_text("labels", work.labels)
    words.between("priority", work.priority, -words.PRIORITY_MAX, words.PRIORITY_MAX)
    words.between("delay_us", work.delay_us, 0)
    words.one_of("on_duplicate", work.on_duplicate, ON_DUPLICATE)
    words.one_of("exhausted", work.exhausted or "exhaust", ("exhaust", "fail"))
    words.one_of("on_reject", work.on_reject or "cancel", ("cancel", "fail"))
    for name in NUMBERS:
        if getattr(work, name) is not None:
            words.between(name, getattr(work, name), 1, SLOTS_MAX if name in ("limit", "rate") else None)
    if (work.limit_key is None) != (work.limit is None):
        raise InterlockError(NO_LIMIT)
    if len({work.rate_key is None, work.rate is None, work.rate_per_us is None}) > 1:
        raise InterlockError(NO_RATE)
    if life.options.lease:
        policy.lease_terms(life.options.lease, own_policy(work))


def check_in(tx: Tx, work: Work) -> None:
    """The same, for one of many that mostly say the same: what was found sound once is not looked at again."""
    rules = RULES_OF(work)
    if rules not in tx.sound:
        check(tx.lives, work)
        tx.sound.add(rules)
        return
    if work.key is not None:
        words.named("key", work.key)
    words.json_text("input", work.input)


def make_lanes(tx: Tx, command: Submit) -> None:
    """The lanes of this work are there for everybody, whatever becomes of the work itself."""
    try:
        for work in command.work:
            check(tx.lives, work)
            lane_for(tx, command.tenant, work.queue, work.capabilities)
    except BaseException:
        tx.session.rollback()
        raise
    tx.session.commit()


def own_policy(work: Work) -> Policy:
    return Policy(**dict(zip(OWN, OWN_OF(work), strict=True)))


@lru_cache(maxsize=1024)
def policy_text(own: tuple[Any, ...]) -> str:
    """What a unit keeps of these values, which many units share."""
    return msgspec.json.encode(Policy(**dict(zip(OWN, own, strict=True)))).decode()


def refuse_conflicts(tx: Tx, command: Submit) -> None:
    """A key stands for one piece of work: another one under it is refused, and so is the same where that was asked."""
    named: dict[tuple[str, str], list[Work]] = {}
    for work in command.work:
        if work.key is not None:
            named.setdefault((work.task, work.key), []).append(work)
    for (task, key), same in named.items():
        found = with_key(tx, command.tenant, task, key)
        modes = {work.on_duplicate for work in same}
        if "reject" in modes and (found or len(same) > 1):
            raise InterlockError(f"DUPLICATE_KEY: task '{task}' has a unit under the key '{key}' already")
        inputs = {work.input for work in same} | ({found.input} if found else set())
        if "return" in modes and len(inputs) > 1:
            raise InterlockError(f"IDEMPOTENCY_CONFLICT: key '{key}' of task '{task}' has another body")


def submit_one(tx: Tx, command: Submit, work: Work, refs: dict[str, int]) -> Submitted:
    found = with_key(tx, command.tenant, work.task, work.key) if work.key is not None else None
    if found is None:
        return Submitted(unit=make(tx, command, work, refs).id, created=True)
    old = tx.unit(found.unit)
    life = tx.life(old)
    unstarted = old.fence == 0 and not life.options.follows and life.allows(old.state, "cancel")
    if work.on_duplicate != "replace" or not unstarted:
        return Submitted(unit=old.id, created=False)
    advance(tx, old, "cancel", Stamp(command.actor, "replaced", command.cause), payload={"key": found.key})
    found.key = None
    tx.keyed[command.tenant, work.task, work.key or ""] = None
    found.replaced_by = make(tx, command, work, refs).id
    tx.change(found)
    return Submitted(unit=found.replaced_by, created=True, replaced=True)


def make(tx: Tx, command: Submit, work: Work, refs: dict[str, int]) -> Unit:
    """A unit with its body and its needs, ready if nothing keeps it."""
    parent = None if work.parent is None else tx.unit(referred(refs, work.parent))
    if parent is not None and tx.life(parent).settled(parent.state):
        raise InterlockError(f"unit {parent.id} has ended ({parent.state}); it gets no more children")
    above = tx.body(parent) if parent else None
    needs = needed(tx, work, refs) if work.needs else []
    unit = Unit(
        id=tx.new_id(),
        parent=parent.id if parent else None,
        decides=int(work.decides),
        unmet=sum(need.outcome != Category.SUCCESS for need in needs),
        tenant=command.tenant,
        lane=lane_for(tx, command.tenant, work.queue, work.capabilities),
        lifecycle=work.lifecycle,
        priority=work.priority,
        due_at=max(work.at_us or 0, tx.now + work.delay_us if work.delay_us else 0) or None,
    )
    tx.bear(unit)
    tx.add(
        Body(
            unit=unit.id, tenant=unit.tenant, task=work.task, key=work.key, created_at=tx.now, input=work.input,
            labels=work.labels, policy=policy_text(OWN_OF(work)), mutex=work.mutex,
            limit_key=work.limit_key, rate_key=work.rate_key, trace=work.trace or (above.trace if above else ""),
            correlation=work.correlation or (above.correlation if above else str(unit.id)),
        )
    )  # fmt: skip
    for need in needs:
        tx.add(Need(unit=unit.id, needs=need.id, tenant=unit.tenant))
    if work.limit_key is not None and work.limit is not None:
        set_limit(tx, unit.tenant, work.limit_key, work.limit, derive)
    if work.rate_key is not None and work.rate is not None:
        set_rate(tx, unit.tenant, work.rate_key, work.rate)
    advance(tx, unit, "submit", asked_by(command))
    life = tx.life(unit)
    if life.options.follows:
        first_attempt(tx, unit)
    waits = life.options.follows or life.allows(unit.state, "ready")  # else it is ready by birth
    if waits and not unit.unmet and planned(tx, unit):
        make_ready(tx, unit)
    return unit


def needed(tx: Tx, work: Work, refs: dict[str, int]) -> list[Unit]:
    """The units that must succeed first, locked."""
    names = list(dict.fromkeys(referred(refs, name) for name in work.needs))
    needs = tx.lock(names)
    if len(needs) != len(names):
        raise Unknown(f"one of the needs {', '.join(map(str, work.needs))} does not exist")
    return needs


def referred(refs: dict[str, int], name: int | str) -> int:
    """The unit that a piece of work names, by id or by the ref of work before it."""
    if isinstance(name, int):
        return name
    if name not in refs:
        raise Unknown(f"no work before this one has the ref '{name}'; there are {', '.join(refs) or 'none'}")
    return refs[name]


def first_attempt(tx: Tx, unit: Unit) -> None:
    """A unit that follows its attempts is born with the first one."""
    attempt = Unit(id=tx.new_id(), tenant=unit.tenant, lane=unit.lane, lifecycle=tx.life(unit).options.follows)
    attempt.parent, attempt.priority = unit.id, unit.priority
    tx.bear(attempt)
    tx.add(msgspec.structs.replace(tx.body(unit), unit=attempt.id, key=None))
    advance(tx, attempt, "submit", Stamp("engine"))
