"""What a piece of work must say before anything is made of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from interlock.core import validation
from interlock.kernel import policy
from interlock.kernel.commands import ON_DUPLICATE, Policy, Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.lifecycle import Lifecycle, RollUp
from interlock.store.hooks import Hooks
from interlock.store.unit_of_work import UnitOfWork

WEBHOOK = re.compile(r"https?://[^\s/?#@\\]+([/?#][!-~]*)?")
EVENT = re.compile(r"[A-Za-z0-9_-]{1,80}:[0-9]{1,18}")  # the id of a unit, and a version
WEBHOOK_MAX = 2_000
OWN = tuple(name for name in Policy.__struct_fields__ if name in Work.__struct_fields__)
OWN_OF = attrgetter(*OWN)
# What units of one kind differ in.
ONCE = ("input", "key", "ref", "parent", "needs", "after", "correlation", "trace", "cause")
RULES_OF = attrgetter(*(name for name in Work.__struct_fields__ if name not in ONCE))
NUMBERS = (
    "attempts", "timeout_us", "queue_timeout_us", "expires_us", "backoff_us", "backoff_cap_us", "ttl_us", "beat_us",
    "sla_us", "reclaim_after_us",
)  # fmt: skip


@dataclass
class CheckedWork:
    """Rules of work that this transaction has found to be allowed, each with a number."""

    rules: dict[tuple[Any, ...], int] = field(default_factory=dict)


def own_policy(work: Work) -> Policy:
    return Policy(**dict(zip(OWN, OWN_OF(work), strict=True)))


@lru_cache(maxsize=1024)
def policy_text(own: tuple[Any, ...]) -> str:
    """What a unit keeps of these values, which many units share."""
    return msgspec.json.encode(Policy(**dict(zip(OWN, own, strict=True)))).decode()


def check(lifecycles: Mapping[str, Lifecycle], work: Work, hooks: Hooks) -> None:
    """Work that could never be done is refused before anything is made of it; plugins check their own options."""
    if work.lifecycle not in lifecycles:
        raise Unknown(f"there is no lifecycle '{work.lifecycle}'; there are {', '.join(lifecycles)}")
    lifecycle = lifecycles[work.lifecycle]
    if lifecycle.birth.trigger != "submit":
        raise InterlockError(f"a {work.lifecycle} is not submitted")
    validation.named("task", work.task)
    validation.named("queue", work.queue)
    if work.key is not None:
        validation.named("key", work.key)
    validation.capabilities(work.capabilities)
    validation.json_text("input", work.input)
    validation.json_text("labels", work.labels)
    validation.between("priority", work.priority, -validation.PRIORITY_MAX, validation.PRIORITY_MAX)
    validation.between("delay_us", work.delay_us, 0)
    validation.one_of("on_duplicate", work.on_duplicate, ON_DUPLICATE)
    validation.one_of("exhausted", work.exhausted or "exhaust", ("exhaust", "fail"))
    for name in NUMBERS:
        if getattr(work, name) is not None:
            validation.between(name, getattr(work, name), 1)
    refuse_strange_options(work, dict(hooks.options))
    for check_options in hooks.checks:
        check_options(lifecycles, work)
    if work.reclaim_after_us is not None and not may_be_reclaimed(lifecycles, work):
        raise InterlockError(
            f"reclaim_after is not allowed for a {work.lifecycle}; allowed is it for a run and its steps"
        )
    if work.webhook_url is not None:
        refuse_webhook(work.webhook_url, lifecycle)
    leased = (
        lifecycles[lifecycle.options.follows] if lifecycle.options.follows else lifecycle
    )  # it is the attempt that is leased
    if leased.options.lease:
        policy.lease_terms(leased.options.lease, own_policy(work))


def refuse_strange_options(work: Work, kinds: Mapping[str, type]) -> None:
    """Every option is one that a plugin knows, and is what the plugin says. Raises InterlockError."""
    if work.options is None:
        return
    validation.json_text("options", work.options)
    given = msgspec.json.decode(work.options)
    if not isinstance(given, dict):
        raise InterlockError("options are a JSON object: a member for each option")
    for name, value in given.items():
        if name not in kinds:
            raise InterlockError(f"there is no option '{name}'; there are {', '.join(kinds) or 'none'}")
        try:
            msgspec.convert(value, kinds[name])
        except msgspec.ValidationError as error:
            raise InterlockError(f"option '{name}': {error}") from None


def may_be_reclaimed(lifecycles: Mapping[str, Lifecycle], work: Work) -> bool:
    """Whether a worker may take this work over where it stands, or work that is a part of it."""
    lifecycle = lifecycles[work.lifecycle]
    return lifecycle.options.roll_up is RollUp.ALL or any(trigger == "reclaim" for _, trigger in lifecycle.moves)


def refuse_webhook(url: str, lifecycle: Lifecycle) -> None:
    """What is kept as a webhook's address is one: whoever may read the run reads it too, so it holds no password."""
    if lifecycle.options.roll_up is RollUp.NONE:
        raise InterlockError(f"webhook_url is not allowed for a {lifecycle.name}; allowed is it for a run")
    if not WEBHOOK.fullmatch(url) or len(url) > WEBHOOK_MAX:
        raise InterlockError(
            f"webhook_url is not allowed; allowed is http://host/… or https://host/… of at most {WEBHOOK_MAX:,} "
            "printable characters, without a user and a password"
        )


def check_in(tx: UnitOfWork, work: Work) -> int:
    """The same, for one of many that mostly say the same: what was found sound once is not looked at again.

    Answers a number that all work of this transaction has which differs only in what is each one's own.
    """
    if work.cause and not EVENT.fullmatch(work.cause):
        raise InterlockError(f"cause = {work.cause[:40]!r} is not allowed; allowed is an event, as in job_4r1:3")
    rules = RULES_OF(work)
    checked = tx.state(CheckedWork).rules
    if (kind := checked.get(rules)) is None:
        check(tx.lifecycles, work, tx.hooks)
        kind = checked[rules] = len(checked)
        return kind
    if work.key is not None:
        validation.named("key", work.key)
    validation.json_text("input", work.input)
    return kind
