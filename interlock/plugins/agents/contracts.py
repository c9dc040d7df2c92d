"""Contracts: what an agent was when its run began, as key-sorted JSON that is known by its SHA-256; pure.

A contract says which model works with which settings and instructions, which tools it may call and who approves them,
how often it may correct itself, how it is validated, and by which lifecycles. Programs that say the same have the same
contract, whatever the order in which they say it.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from interlock.kernel.errors import InterlockError, NotWanted
from interlock.kernel.lifecycle import Lifecycle

SCHEMA = 1  # of the contracts that are understood here
OFF, WARN, ENFORCE = VALIDATIONS = ("off", "warn", "enforce")
REQUIRED = "VALIDATION_REQUIRED"
CAPABILITY = "contract:"  # how the capability begins that a job with a contract needs of its worker
MISMATCH, MISSING, UNSUPPORTED = "CONTRACT_MISMATCH", "EXECUTION_CONTRACT_MISSING", "UNSUPPORTED_CONTRACT"
TEXT_MAX = 1024 * 1024  # characters
SHOWN, AROUND = 80, 20  # characters of a value in a difference, and of what is before the place where it begins
DIGEST_SHOWN = 12  # characters of a digest in a sentence


class ContractMismatch(NotWanted):
    """A run has another contract than somebody names; `difference` says in what they differ."""

    def __init__(self, text: str, difference: list[str]) -> None:
        super().__init__(f"{MISMATCH}: {text}")
        self.difference = difference


class ToolTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool that an agent may call: the digest of what it takes, and who approves a call."""

    name: str
    schema: str
    approval: dict[str, Any] | None = None


class Contract(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an agent was when its run began."""

    agent: str
    schema: int = SCHEMA
    version: str = ""
    model: str = ""
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    instructions: str = ""
    tools: tuple[ToolTerms, ...] = ()
    corrections: int | None = None
    optimizations: int | None = None
    validation: str = OFF
    checks: tuple[Any, ...] | None = None  # as work says them; None: a verdict comes from outside
    lifecycle: str = ""  # the digest of what runs and their jobs may do


def encode_contract(contract: Contract | Mapping[str, Any]) -> str:
    """The text of a contract, of which its digest is: key-sorted JSON.

    Raises:
        InterlockError: it is no JSON.
    """
    try:
        return msgspec.json.encode(contract, order="sorted").decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InterlockError(f"the contract cannot be kept as JSON: {error}") from None


def digest_text(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal digits."""
    return sha256(text.encode()).hexdigest()


def digest_lifecycles(lifecycles: Mapping[str, Lifecycle], names: Iterable[str]) -> str:
    """The digest of what units of these lifecycles may do: their moves, without the times and the words about them."""
    moves = {
        name: sorted(
            [state or "", trigger, [*move.path], str(move.owner)]
            for (state, trigger), move in lifecycles[name].moves.items()
        )
        for name in names
    }
    return digest_text(msgspec.json.encode(moves, order="sorted").decode())


def parse_contract(text: str) -> Contract | None:
    """The contract of a text; None if its schema is not known here.

    Raises:
        InterlockError: it is no contract.
    """
    if len(text) > TEXT_MAX:
        raise InterlockError(f"the contract is too large: {len(text):,} characters, and {TEXT_MAX:,} are allowed")
    try:
        given = msgspec.json.decode(text)
        if isinstance(given, dict) and given.get("schema", SCHEMA) != SCHEMA:
            return None
        contract = msgspec.convert(given, Contract)
    except (msgspec.MsgspecError, RecursionError) as error:
        allowed = ", ".join(Contract.__struct_fields__)
        raise InterlockError(f"the contract is not allowed: {error}; allowed are {allowed}") from None
    check_contract(contract)
    return contract


def check_contract(contract: Contract) -> None:
    """Raises InterlockError for a contract that could not be kept."""
    check_validation(contract.validation)
    names = [tool.name for tool in contract.tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InterlockError(f"the tool '{twice[0]}' is there twice; give one of them another name")


def check_validation(given: Any) -> str:
    """Returns how a run is validated.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if given not in VALIDATIONS:
        raise InterlockError(f"validation = {given!r} is not allowed; allowed are {', '.join(VALIDATIONS)}")
    return str(given)


def find_fault(text: str | None, digest: str) -> str:
    """Why nothing may be run under a contract as it is stored; empty if it may be."""
    short = digest[:DIGEST_SHOWN]
    if text is None:
        return f"{MISSING} {short}: no contract of this digest is stored"
    if (actual := digest_text(text)) != digest:
        return f"{MISMATCH} {short}: what is stored under this digest comes to {actual[:DIGEST_SHOWN]}"
    try:
        if parse_contract(text) is None:
            return f"{UNSUPPORTED} {short}: it is of another schema than {SCHEMA}, which is known here"
    except InterlockError as error:
        return f"{UNSUPPORTED} {short}: {error}"
    return ""


def describe_difference(before: str, now: str) -> list[str]:
    """In what two contracts differ, a line for each field."""
    old, new = msgspec.json.decode(before), msgspec.json.decode(now)
    return [
        f"{name}: {show_from(old.get(name), new.get(name))} is now {show_from(new.get(name), old.get(name))}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def show_from(value: Any, other: Any) -> str:
    """A value in a line; of a long text, the part where it begins to differ from the other."""
    text, counterpart = (msgspec.json.encode(each).decode() for each in (value, other))
    if len(text) <= SHOWN:
        return text
    same = next((place for place, pair in enumerate(zip(text, counterpart, strict=False)) if pair[0] != pair[1]), 0)
    start = max(0, same - AROUND)
    return ("…" if start else "") + text[start : start + SHOWN] + ("…" if len(text) > start + SHOWN else "")
