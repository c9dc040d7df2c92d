"""What a workstream and its tasks say of themselves: `Work(options='{"workstreams": {"expects": 3}}')`."""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from interlock.core import validation
from interlock.core.effective_policy import policy_in, policy_of
from interlock.kernel.commands import Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.rows import Body

NAME = "workstreams"  # of the plugin, and of its member of `Work.options`
EXPECTS_MAX = 1_000_000
MEMBER = f'"{NAME}"'


class WorkstreamOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a workstream says of itself, and what a task does."""

    # Of a workstream: how many tasks it has when it is planned. Without it, what comes with it in one submit is all.
    expects: int | None = None


def is_workstream(lifecycle: Lifecycle) -> bool:
    """Whether units of this lifecycle are judged by their critical children."""
    return lifecycle.options.roll_up is RollUp.CRITICAL


def check_workstream(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """Check what work says of itself as a workstream or a task. Raises InterlockError."""
    if (own := read_own(work)) is None:
        return
    if not is_workstream(lifecycles[work.lifecycle]) and own.expects is not None:
        raise InterlockError(f"expects is not allowed for a {work.lifecycle}; allowed is it for a workstream")
    if own.expects is not None:
        validation.check_range("expects", own.expects, 1, EXPECTS_MAX)


def read_own(work: Work) -> WorkstreamOptions | None:
    """What work says, before it is made; None if it says nothing."""
    return decode_options(work.options)


def options_of(body: Body) -> WorkstreamOptions | None:
    """What a unit says of itself; None if it says nothing."""
    return decode_options(policy_of(body).options)


def options_in(policy: str) -> WorkstreamOptions | None:
    """The same by the text of its policy, as the database keeps it."""
    return decode_options(policy_in(policy).options)


@lru_cache(maxsize=1024)
def decode_options(text: str | None) -> WorkstreamOptions | None:
    """The plugin's member of options; tasks of one kind say the same, so it is read once."""
    if text is None or MEMBER not in text:
        return None
    given = msgspec.json.decode(text)
    return msgspec.convert(given[NAME], WorkstreamOptions) if isinstance(given, dict) and NAME in given else None
