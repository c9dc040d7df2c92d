"""What a workstream and its tasks say of themselves: `Work(options='{"workstreams": {"expects": 3}}')`."""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from interlock.core import validation
from interlock.core.effective_policy import policy_in, policy_of
from interlock.kernel.commands import Work
from interlock.kernel.durations import LONGEST_US
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.rows import Body

NAME = "workstreams"  # of the plugin, and of its member of `Work.options`
MEMBER = f'"{NAME}"'
EXPECTS_MAX = 1_000_000
AT_ONCE_MAX = 2**31 - 1
OF_WORKSTREAM = ("expects", "at_once")
OF_TASK = ("allow_failure", "map", "takes_us")
REASSIGNED = "reassigned"  # the kind of note that has the name of the worker from which a task was taken
ALLOWED = "failure_allowed"  # the trigger by which a task that may fail ends


class MapOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a map goes over: a list in the output of something that it needs, as in `fetch.images`."""

    over: str
    argument: str = "item"  # the name of the argument by which a task gets its element
    at_once: int | None = None  # so many of its tasks run at a time


class WorkstreamOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a workstream says of itself, and what a task does."""

    # Of a workstream: how many tasks it has when it is planned. Without it, what comes with it in one submit is all.
    expects: int | None = None
    at_once: int | None = None  # of a workstream: so many of its tasks run at a time
    allow_failure: bool = False  # of a task: its failure counts as its completion
    map: MapOptions | None = None  # of a task: it is done once for each element of a list
    item_of: int | None = None  # of a task that a map made: the map
    repo: str | None = None  # the repository that it works on, by name
    takes_us: int | None = None  # of a task: how long it will take, for the plan; nothing else heeds it


def is_workstream(lifecycle: Lifecycle) -> bool:
    """Whether units of this lifecycle are judged by their critical children."""
    return lifecycle.options.roll_up is RollUp.CRITICAL


def check_workstream(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """Check what work says of itself as a workstream or a task.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if (own := read_own(work)) is None:
        return
    lifecycle = lifecycles[work.lifecycle]
    refused: tuple[str, ...] = OF_TASK if is_workstream(lifecycle) else OF_WORKSTREAM
    if not is_workstream(lifecycle) and not any(trigger == ALLOWED for _, trigger in lifecycle.moves):
        refused = (*OF_WORKSTREAM, *OF_TASK)
    for name in refused:
        if getattr(own, name):
            allowed = "workstream" if name in OF_WORKSTREAM else "task"
            raise InterlockError(f"{name} is not allowed for a {work.lifecycle}; it is for a {allowed}")
    if own.item_of is not None:
        raise InterlockError("item_of is not allowed: the tasks of a map are made by the map")
    if own.expects is not None:
        validation.check_range("expects", own.expects, 1, EXPECTS_MAX)
    if own.at_once is not None:
        validation.check_range("at_once", own.at_once, 1, AT_ONCE_MAX)
    if own.takes_us is not None:
        validation.check_range("takes_us", own.takes_us, 0, LONGEST_US)


def check_map(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """Check what a map goes over.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if (options := read_own(work)) is None or options.map is None:
        return
    own = options.map
    name, dot, path = own.over.partition(".")
    if work.step is None:
        raise InterlockError("a map has a name (step): its tasks are called like it")
    if name not in work.needs:
        raise InterlockError(
            f"map: over = '{own.over}' is not allowed; allowed is a need of the task, with a path into its output, "
            f"as in NEED.field; it needs {', '.join(work.needs) or 'nothing'}"
        )
    validation.check_name("argument", own.argument)
    if dot and not all(path.split(".")):
        raise InterlockError(f"map: over = '{own.over}' is not allowed; a part of its path is empty")
    if own.at_once is not None:
        validation.check_range("at_once", own.at_once, 1, AT_ONCE_MAX)


def read_own(work: Work) -> WorkstreamOptions | None:
    """What work says, before it is made; None if it says nothing."""
    return decode_options(work.options)


def read_stream_options(body: Body) -> WorkstreamOptions | None:
    """What a unit says of itself; None if it says nothing."""
    return decode_options(policy_of(body).options)


def decode_stream_options(policy: str) -> WorkstreamOptions | None:
    """The same by the text of its policy, as the database keeps it."""
    return decode_options(policy_in(policy).options)


@lru_cache(maxsize=1024)
def decode_options(text: str | None) -> WorkstreamOptions | None:
    """The plugin's member of options; tasks of one kind say the same, so it is read once."""
    if text is None or MEMBER not in text:
        return None
    given = msgspec.json.decode(text)
    return msgspec.convert(given[NAME], WorkstreamOptions) if isinstance(given, dict) and NAME in given else None


def encode_options(text: str | None, own: WorkstreamOptions) -> str:
    """Options with another member of the plugin."""
    given = msgspec.json.decode(text) if text is not None else {}
    return msgspec.json.encode({**given, NAME: own}).decode()
