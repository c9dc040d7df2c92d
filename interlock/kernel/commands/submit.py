"""Commands that make units."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from interlock.kernel.commands.base import Command, Route

ON_DUPLICATE = ("return", "reject", "replace")


# When the verdict on a run falls: with the first lost child that decides, or when all children have ended.
SETTLES = ("first", "all")
# Fields of work that are not written where they say nothing: so the digests of what is stored stay as they are.
SILENT = (
    "needs_end", "after_end", "plan_timeout_us", "cancel_timeout_us", "losses", "settle", "retry_of", "depends",
    "resources",
)  # fmt: skip


class Resource(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Something that work needs while it is held, in one of four ways.

    `exclusive`: nobody else uses it. `shared`: nobody uses it exclusively. `counted`: it takes `n` of the `of` that
    there are. `rated`: `n` units begin in any stretch of time that is `per_us` long.
    """

    name: str
    mode: str = "exclusive"
    n: int = 1
    of: int | None = None
    per_us: int | None = None


class Work(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One unit to be made."""

    task: str
    lifecycle: str = "job"
    input: str = "null"  # JSON; the engine never looks inside
    queue: str = "default"
    capabilities: tuple[str, ...] = ()
    key: str | None = None
    priority: int = 0
    delay_us: int = 0
    at_us: int | None = None  # not before that instant
    on_duplicate: str = "return"
    mutex: str | None = None  # one unit of that name at a time
    limit_key: str | None = None
    limit: int | None = None  # so many units of that limit key at a time
    rate_key: str | None = None
    rate: int | None = None  # so many units of that rate key begin in any stretch of time of that length
    rate_per_us: int | None = None
    labels: str = "{}"
    correlation: str = ""
    trace: str = ""
    cause: str = ""  # the event that led to it, as in job_4r1:3; the command's own cause by default
    parent: int | str | None = None  # a unit, or the ref of work in the same command
    # What must succeed first: refs of work in the same command, or names of children of the same parent, also of those
    # that are yet to come; and the ids of units that are there already.
    needs: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    needs_end: tuple[str, ...] = ()  # the same for what must only have ended, whatever came of it
    after_end: tuple[int, ...] = ()
    ref: str = ""  # what other work in the same command calls it
    decides: bool = True  # critical, or required, to its parent
    retry_of: int | None = None  # the unit that has ended and that it does again

    # What differs from the lifecycle's own rules, by the names of `Policy`.
    attempts: int | None = None
    exhausted: str | None = None
    timeout_us: int | None = None
    queue_timeout_us: int | None = None
    plan_timeout_us: int | None = None
    cancel_timeout_us: int | None = None
    losses: int | None = None
    settle: str | None = None
    depends: tuple[str, ...] = ()
    resources: tuple[Resource, ...] = ()
    expires_us: int | None = None
    backoff_us: int | None = None
    backoff_cap_us: int | None = None
    ttl_us: int | None = None
    beat_us: int | None = None
    silent: bool = False
    sla_us: int | None = None
    quorum: int | None = None
    on_reject: str | None = None
    approvers: tuple[str, ...] = ()
    not_submitter: bool = False
    reclaim_after_us: int | None = None
    webhook_url: str | None = None

    # What it is in a workflow.
    step: str | None = None  # its name in its parent, which no other child of it has
    when: str | None = None
    undo: str | None = None
    template: str | None = None
    template_version: int | None = None  # the newest one by default
    keep_us: int | None = None  # as the policy says
    # Names of fields that hold although they have their default: the rules of the task do not take their place.
    explicit: tuple[str, ...] = ()
    options: str | None = None  # of further plugins: a JSON object with a member for each, by the plugin's name


Options = TypeVar("Options", bound=msgspec.Struct)


def read_options(work: Work, kind: type[Options]) -> Options:
    """What work says to a plugin whose options are fields of `Work`, as the plugin's own type."""
    return msgspec.convert(work, kind, from_attributes=True)


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What differs from the lifecycle's own rules; stored with the unit."""

    attempts: int | None = None
    exhausted: str | None = None  # when none is left: "exhaust" (a dead letter) or "fail"
    timeout_us: int | None = None  # for how long it may run
    queue_timeout_us: int | None = None  # for how long it may wait to be claimed
    plan_timeout_us: int | None = None  # for how long it may wait for its plan; as long as to be claimed by default
    cancel_timeout_us: int | None = None  # for how long its holder may take to stop
    losses: int | None = None  # how many leases may be lost; by default they share `attempts` with failures
    settle: str | None = None  # of a run: "first" (by default) or "all", see SETTLES
    depends: tuple[str, ...] = ()  # what outside systems it needs; while one of them is away, it waits
    resources: tuple[Resource, ...] = ()  # what it needs while it is held, all of it or none
    expires_us: int | None = None  # for how long it may wait for a verdict
    backoff_us: int | None = None
    backoff_cap_us: int | None = None
    ttl_us: int | None = None
    beat_us: int | None = None
    silent: bool = False  # its workers cannot beat: its lease lasts for its whole TTL
    sla_us: int | None = None  # the longest time without a sign of life
    keep_us: int | None = None  # how long it stays in the database after its end, at least
    quorum: int | None = None  # of an approval: how many votes it takes, one by default
    on_reject: str | None = None  # of an approval: "cancel" (the default) or "fail" its run
    approvers: tuple[str, ...] = ()  # of an approval: who may vote, by name or role; anybody by default
    not_submitter: bool = False  # of an approval: whoever submitted the run has no vote
    reclaim_after_us: int | None = None  # how old a step must be before another worker takes it over
    webhook_url: str | None = None  # of a run: where its end is to be told
    step: str | None = None  # its name in its parent
    when: str | None = None  # a condition on the outputs of earlier steps; if it is false, the step is skipped
    undo: str | None = None  # the task that undoes it if its run ends without success
    template: str | None = None  # the template whose run it is
    template_version: int | None = None
    earlier: tuple[int, ...] = ()  # runs whose outputs it goes on with, the oldest first
    undoes: int | None = None  # the note whose compensation this is
    takes_outputs: bool = False  # its holder is handed the results of what it needs
    rate_per_us: int | None = None  # how long a token of its rate is away
    options: str | None = None  # of further plugins, by name


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """The unit that a submit made, or found under its key."""

    unit: int
    created: bool
    replaced: bool = False  # an unstarted unit made room for it
    lifecycle: str = ""
    state: str = ""  # as the command left it; what follows for its family is not in it
    cause: str | None = None  # of the command that was carried out: one that comes again is answered with the first's


class Submit(Command[list[Submitted]], frozen=True, kw_only=True):
    """Make units; under a key that is taken, answer the unit that has it."""

    counted = "work"
    committer = Route.SUBMIT
    scope = "submit"
    public = True

    work: tuple[Work, ...]


UNSAID = ',"keep_us":null,"explicit":[],"options":null}'  # the end of most work


def encode_work(work: Work | list[Work]) -> str:
    """Work as schedules and templates keep it: what few say is not written, so that old digests still fit."""
    text = msgspec.json.encode(work).decode().replace(UNSAID, "}")
    for name in SILENT:
        text = text.replace(f',"{name}":null', "").replace(f',"{name}":[]', "")
    return text


def list_work(command: Command[Any]) -> Iterator[Work]:
    """Lists the work that a command makes or keeps, whichever of its fields has it."""
    for name in command.__struct_fields__:
        value = getattr(command, name)
        if isinstance(value, Work):
            yield value
        elif isinstance(value, tuple) and value and isinstance(value[0], Work):
            yield from value


def list_inner_work(work: Work) -> Iterator[Work]:
    """Lists the work that the options of work hold, such as its checks. Options that cannot be read hold none."""
    text = work.options
    if text is None or ('"task"' not in text and "\\" not in text):  # which may spell any letter
        return
    try:
        parts: list[Any] = [msgspec.json.decode(text)]
    except (msgspec.MsgspecError, RecursionError):
        return
    while parts:
        part = parts.pop()
        if isinstance(part, dict) and "task" in part:
            with suppress(msgspec.ValidationError):
                yield msgspec.convert(part, Work)
        elif isinstance(part, dict | list):
            parts += part.values() if isinstance(part, dict) else part


def list_option_names(work: Work) -> set[str]:
    """Lists the plugins that work says something to, itself or by the work that it holds.

    Options that cannot be read name none, and are refused later.
    """
    if work.options is None:
        return set()
    try:
        own = set(msgspec.json.decode(work.options, type=dict[str, msgspec.Raw]))
    except (msgspec.MsgspecError, RecursionError):
        return set()
    return own.union(*(list_option_names(inner) for inner in list_inner_work(work)))
