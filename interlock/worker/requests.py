"""What a step or an effect was asked (`of=`), and the error if another attempt asked something else."""

from difflib import unified_diff
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.exceptions import Drift
from interlock.core.validation import check_name
from interlock.kernel.commands import AskedFor
from interlock.kernel.errors import InterlockError, PermanentError

if TYPE_CHECKING:
    from interlock.worker.context import JobContext

ENCODE = msgspec.json.Encoder(order="sorted").encode
TEXT_MAX = 16 * 1024  # characters of a request that are kept
LINES_MAX = 40  # of a difference


def check_record_name(what: str, name: Any) -> None:
    """Raises PermanentError for what is no name: another attempt would not find what is recorded under it."""
    try:
        check_name(f"the name of {what}", name)
    except InterlockError as wrong:
        raise PermanentError(str(wrong)) from None


def describe_request(name: str, of: Any, context: "JobContext") -> AskedFor | None:
    """What is asked for, as it is compared: dictionaries have no order. None if nobody says.

    All of it is compared, and what is kept of it has passed the handler's `redact`.

    Raises:
        PermanentError: it cannot be kept as JSON.
    """
    if of is None:
        return None
    try:
        digest = sha256(ENCODE(of)).hexdigest()
        text = ENCODE(context.clean(name, of))
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise PermanentError(f"what '{name}' is asked (of=) cannot be kept as JSON: {error}") from None
    return AskedFor(digest, text.decode()[:TEXT_MAX])


def make_drift(name: str, before: str | None, now: AskedFor) -> Drift:
    """The error for a request that is not the recorded one; nothing has run."""
    lines = unified_diff(split_request(before or ""), split_request(now.text), "recorded", "now", lineterm="", n=1)
    shown = list(lines)
    if len(shown) > LINES_MAX:
        shown = [*shown[:LINES_MAX], f"… and {len(shown) - LINES_MAX} lines more"]
    if not shown:
        shown = [f"they differ behind the first {TEXT_MAX:,} characters, which are all that is kept"]
    return Drift(
        f"'{name}' is recorded, and what was asked for then is not what is asked for now; nothing was run. Give it "
        "another name, or fork the run before it:\n" + "\n".join(shown)
    )


def split_request(text: str) -> list[str]:
    """The lines of a request; one that was too long to be kept whole is shown as it is."""
    try:
        return msgspec.json.format(text, indent=1).splitlines()
    except msgspec.MsgspecError:
        return [text[place : place + 100] for place in range(0, len(text), 100)]
