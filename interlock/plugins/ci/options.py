"""What a CI run, a job and its attempts say of themselves for this plugin."""

from collections.abc import Mapping

import msgspec

from interlock.core.effective_policy import option_of
from interlock.kernel.commands import Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Body

NAME = "ci"  # of the plugin, and of its member of `Work.options`
RUN, JOB, ATTEMPT = "ci_run", "ci_job", "ci_attempt"
NOBODY = "nobody"
RETRIES_MAX = 10


class CiOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What work says of itself; an attempt has what its job says."""

    report_to: str = ""  # of a run: nobody, if its end is told to no forge
    job: str = ""  # of a job: its name in the config, without the values of a matrix
    fingerprint: str = ""  # of a job: what its result depends on
    retries: dict[str, int] = {}  # of a job: how often it is tried again, by the rule (`failures.py`)
    reuses: int | None = None  # of a job: the attempt whose result it takes over


def check_ci(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """Check what work says of itself.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    given = {} if work.options is None else msgspec.json.decode(work.options)
    if NAME not in given:
        return
    own = msgspec.convert(given[NAME], CiOptions)
    if work.lifecycle not in (RUN, JOB):
        raise InterlockError(f"option '{NAME}' is not allowed for a {work.lifecycle}; it is for {RUN} and {JOB}")
    if own.report_to not in ("", NOBODY) or (own.report_to and work.lifecycle != RUN):
        raise InterlockError(f"report_to = {own.report_to[:40]!r} is not allowed; allowed is '{NOBODY}', of a run")
    for rule, number in own.retries.items():
        if not 0 <= number <= RETRIES_MAX:
            raise InterlockError(f"retries: {rule[:40]} = {number} is not allowed; allowed are 0 to {RETRIES_MAX}")


def encode_options(options: CiOptions) -> str:
    """Returns the options of work that says this of itself."""
    return msgspec.json.encode({NAME: options}).decode()


def read_options_of(body: Body) -> CiOptions | None:
    """Returns what a unit says of itself; None if it was made without this plugin."""
    return option_of(body, NAME, CiOptions)
