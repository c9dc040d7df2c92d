"""Validate commands: a wrong value is refused with a message that says what is allowed.

The small checks come first (a name, a number, a choice, JSON), then `check_work`, which decides whether a piece of work
could ever be done. Every check returns nothing, and raises InterlockError if the value is not allowed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from operator import attrgetter
from typing import Any

import msgspec

from interlock.kernel import timing
from interlock.kernel.blobs import check_digest
from interlock.kernel.commands import ON_DUPLICATE, SETTLES, AskedFor, Policy, Work
from interlock.kernel.commands.submit import list_inner_work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.lifecycle_options import RollUp
from interlock.store.hooks import Hooks
from interlock.store.unit_of_work import UnitOfWork

NAME_MAX = 200  # characters
PRIORITY_MAX = 2**31 - 1
WEBHOOK = re.compile(r"https?://[^\s/?#@\\]+([/?#][!-~]*)?")
EVENT = re.compile(r"[A-Za-z0-9_-]{1,80}:[0-9]{1,18}")  # the id of a unit, and a version
ASKED_MAX = 64 * 1024  # characters
WEBHOOK_MAX = 2_000
RULES_MAX = 200  # that an engine remembers to be allowed
POLICY_FIELDS = tuple(name for name in Policy.__struct_fields__ if name in Work.__struct_fields__)
policy_values = attrgetter(*POLICY_FIELDS)
# What units of one kind differ in.
OWN_FIELDS = (
    "input", "key", "ref", "parent", "needs", "after", "needs_end", "after_end", "correlation", "trace", "cause",
    "step",
)  # fmt: skip
shared_values = attrgetter(*(name for name in Work.__struct_fields__ if name not in OWN_FIELDS))
CLOCKS = ("timeout_us", "queue_timeout_us", "plan_timeout_us", "cancel_timeout_us")
POSITIVE = (
    "attempts", "timeout_us", "queue_timeout_us", "expires_us", "backoff_us", "backoff_cap_us", "ttl_us", "beat_us",
    "sla_us", "reclaim_after_us", "keep_us", "plan_timeout_us", "cancel_timeout_us", "losses",
)  # fmt: skip
SETTLED_BY_CHILDREN = (RollUp.ALL, RollUp.CRITICAL, RollUp.REQUIRED)


def check_choice(name: str, word: str, allowed: tuple[str, ...]) -> None:
    """A word that is one of those that are allowed."""
    if word not in allowed:
        raise InterlockError(f"{name} = '{word}' is not allowed; allowed are {', '.join(allowed)}")


def check_range(name: str, number: int, least: int, most: int | None = None) -> None:
    """A number from `least` to `most`, or without an upper end."""
    if number < least or (most is not None and number > most):
        allowed = f"at least {least}" if most is None else f"{least} to {most}"
        raise InterlockError(f"{name} = {number} is not allowed; allowed is {allowed}")


def check_name(name: str, text: str) -> None:
    """A name that people and keys can bear."""
    if not isinstance(text, str):
        raise InterlockError(f"{name} = {text!r} is not allowed; allowed is text")
    if not text or len(text) > NAME_MAX or "\0" in text:
        raise InterlockError(f"{name} = {text[:40]!r} is not allowed; allowed are 1 to {NAME_MAX} characters, none NUL")


def check_text(name: str, text: str | None) -> None:
    """Text that both databases can keep."""
    if text is not None and not isinstance(text, str):
        raise InterlockError(f"{name} = {text!r} is not allowed; allowed is text")
    if text is not None and "\0" in text:
        raise InterlockError(f"{name} has a NUL character, which is not allowed")


def check_capabilities(words: tuple[str, ...]) -> None:
    """Names without a comma, which separates them where they are kept."""
    for word in words:
        check_name("a capability", word)
        if "," in word:
            raise InterlockError(f"the capability '{word}' has a comma, which is not allowed")


def check_json(name: str, text: str) -> None:
    """Text that is JSON, whatever it says."""
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise InterlockError(f"{name} is not JSON: {error}") from None
    except RecursionError:
        raise InterlockError(f"{name} is nested too deeply to be read") from None


def check_asked(of: AskedFor) -> None:
    """What a step or an effect asked for: a digest, and the text of it that is kept."""
    if check_digest(of.digest) != of.digest:
        raise InterlockError("of.digest begins with 'sha256:'; allowed are the digits alone")
    check_text("of.text", of.text)
    check_range("the number of characters in of.text", len(of.text), 0, ASKED_MAX)


# A piece of work.


@dataclass
class CheckedWork:
    """Rules of work that an engine has lately found to be allowed, each with a number."""

    rules: dict[tuple[Any, ...], int] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)  # never used again, though rules are forgotten


def make_policy(work: Work) -> Policy:
    """What a piece of work says of itself, as its unit keeps it."""
    return Policy(**dict(zip(POLICY_FIELDS, policy_values(work), strict=True)))


@lru_cache(maxsize=1024)
def encode_policy(own: tuple[Any, ...], takes_outputs: bool = False) -> str:
    """What a unit keeps of these values, which many units share."""
    given = dict(zip(POLICY_FIELDS, own, strict=True))
    return msgspec.json.encode(Policy(**given, takes_outputs=takes_outputs)).decode()


def check_work(lifecycles: Mapping[str, Lifecycle], work: Work, hooks: Hooks) -> None:
    """Work that could never be done is refused before anything is made of it; plugins check their own options."""
    if work.lifecycle not in lifecycles:
        raise Unknown(f"there is no lifecycle '{work.lifecycle}'; there are {', '.join(lifecycles)}")
    lifecycle = lifecycles[work.lifecycle]
    if lifecycle.birth.trigger != "submit":
        raise InterlockError(f"a {work.lifecycle} cannot be submitted")
    check_name("task", work.task)
    check_name("queue", work.queue)
    if work.key is not None:
        check_name("key", work.key)
    check_capabilities(work.capabilities)
    check_json("input", work.input)
    check_json("labels", work.labels)
    check_range("priority", work.priority, -PRIORITY_MAX, PRIORITY_MAX)
    check_range("delay_us", work.delay_us, 0)
    for name in work.explicit:
        check_choice("explicit", name, Work.__struct_fields__)
    check_choice("on_duplicate", work.on_duplicate, ON_DUPLICATE)
    check_choice("exhausted", work.exhausted or "exhaust", ("exhaust", "fail"))
    check_choice("settle", work.settle or SETTLES[0], SETTLES)
    if work.settle is not None and lifecycle.options.roll_up not in SETTLED_BY_CHILDREN:
        raise InterlockError(f"settle is not allowed for a {work.lifecycle}; it is for a run")
    if work.settle == SETTLES[1] and lifecycle.options.roll_up is RollUp.CRITICAL:
        why = "a critical task that fails fails it at once; a task that need not succeed is critical = false"
        raise InterlockError(f"settle 'all' is not allowed for a {work.lifecycle}: {why}")
    for name in POSITIVE:
        if getattr(work, name) is not None:
            check_range(name, getattr(work, name), 1)
    if lifecycle.options.roll_up is RollUp.ALL:
        check_clocks(work, lifecycle)
    check_options_known(work, dict(hooks.options))
    for check_options in (*hooks.checks, *hooks.checks_each):
        check_options(lifecycles, work)
    for inner in list_inner_work(work):
        try:
            check_work(lifecycles, inner, hooks)
        except InterlockError as wrong:
            raise InterlockError(f"'{inner.task}': {wrong}") from None
    if work.reclaim_after_us is not None and not may_be_reclaimed(lifecycles, work):
        raise InterlockError(f"reclaim_after is not allowed for a {work.lifecycle}; it is for a run and its steps")
    if work.webhook_url is not None:
        check_webhook(work.webhook_url, lifecycle)
    leased = (
        lifecycles[lifecycle.options.follows] if lifecycle.options.follows else lifecycle
    )  # it is the attempt that is leased
    if leased.options.lease:
        timing.check_lease_terms(leased.options.lease, make_policy(work))


def check_clocks(work: Work, lifecycle: Lifecycle) -> None:
    """A run is given no clock that none of its states has: it would never strike.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    for name in CLOCKS:
        of_work = Policy(**{name: getattr(work, name)})
        if getattr(work, name) and not any(timing.own_limit(lifecycle, state, of_work) for state in lifecycle.states):
            raise InterlockError(
                f"{name} is not allowed for a {work.lifecycle}, which has no such clock; it is for its steps"
            )


def check_options_known(work: Work, kinds: Mapping[str, type]) -> None:
    """Every option is one that a plugin knows, and is what the plugin says.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if work.options is None:
        return
    check_json("options", work.options)
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


def check_webhook(url: str, lifecycle: Lifecycle) -> None:
    """What is kept as a webhook's address is one: whoever may read the run reads it too, so it holds no password."""
    if lifecycle.options.roll_up is RollUp.NONE:
        raise InterlockError(f"webhook_url is not allowed for a {lifecycle.name}; it is for a run")
    if not WEBHOOK.fullmatch(url) or len(url) > WEBHOOK_MAX:
        raise InterlockError(
            f"webhook_url is not allowed; allowed is http://host/… or https://host/… of at most {WEBHOOK_MAX:,} "
            "printable characters, without a user and a password"
        )


def check_work_once(tx: UnitOfWork, work: Work) -> int:
    """The same, for one of many that mostly say the same: what was found sound once is not looked at again.

    Returns a number that all work has which differs only in what is each one's own.
    """
    if work.cause and not EVENT.fullmatch(work.cause):
        raise InterlockError(f"cause = {work.cause[:40]!r} is not allowed; allowed is an event, as in job_4r1:3")
    rules = shared_values(work)
    if work.options is not None:  # a plugin may look at whether it has a name
        rules = (*rules, work.step is None)
    checked = tx.cache.state(CheckedWork)
    if (kind := checked.rules.get(rules)) is None:
        check_work(tx.lifecycles, work, tx.hooks)
        if len(checked.rules) >= RULES_MAX:
            checked.rules.clear()
        kind = checked.rules[rules] = next(checked.numbers)
        return kind
    if work.key is not None:
        check_name("key", work.key)
    if work.step is not None:
        check_name("step", work.step)
    check_json("input", work.input)
    if work.options is not None:
        for check in tx.hooks.checks_each:
            check(tx.lifecycles, work)
    return kind
