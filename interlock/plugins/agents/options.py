"""What an agent run says of itself: how often it may correct and optimize its work, its budget and its contract."""

from collections.abc import Mapping

import msgspec

from interlock.core import validation
from interlock.core.effective_policy import option_of
from interlock.kernel.budgets import Cap, check_caps
from interlock.kernel.commands import Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Body
from interlock.plugins.agents.contracts import check_validation, parse_contract

NAME = "agents"  # of the plugin, and of its member of `Work.options`
RUN, JOB = "agent_run", "agent_job"
WORKER = "agent"  # the name of the first job in its run: under a key it is found again
CAP_MAX = 1_000
CAPPED = ("corrections", "optimizations")  # phases


class ContractTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The contract of a run: a submit has its text, or the digest of a stored one; what is kept has the digest."""

    digest: str = ""
    text: str = ""
    environment: tuple[str, ...] = ()  # fields that its program took from environment variables


class AgentOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a run says of itself.

    How often it may enter a phase, over all its jobs (None: as often as it wants; 0 is legal), what it and all below it
    may use, how what it returns is validated (off, warn, enforce), and its contract.
    """

    corrections: int | None = None
    optimizations: int | None = None
    budget: dict[str, Cap] | None = None
    validation: str | None = None
    contract: ContractTerms | None = None


def check_agent(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """Check what work says of itself as an agent run.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    given = {} if work.options is None else msgspec.json.decode(work.options)
    if NAME not in given:
        return
    if work.lifecycle != RUN:
        raise InterlockError(f"option '{NAME}' is not allowed for a {work.lifecycle}; it is for an {RUN}")
    own = msgspec.convert(given[NAME], AgentOptions)
    check_caps(own.budget or {})
    for name in CAPPED:
        if (cap := getattr(own, name)) is not None:
            validation.check_range(name, cap, 0, CAP_MAX)
    if own.validation is not None:
        check_validation(own.validation)
    if own.contract is not None and own.contract.text:
        parse_contract(own.contract.text)


def read_agent_options(body: Body) -> AgentOptions:
    """What a run says of itself."""
    return option_of(body, NAME, AgentOptions) or AgentOptions()
