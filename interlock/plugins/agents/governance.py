"""The decision about an agent run that CI acts on: PASS or FAIL, with reasons, and a hash.

It is a function of what is recorded and of nothing else: no clock, no environment, no log. Whoever asks twice gets the
same decision with the same hash, on whatever machine. PASS takes all of it: the run is complete, somebody else than its
holder has found it valid, its contract is there and understood, and where it works in a repository its commit is named.
Asked strictly, nothing may be left in doubt besides: no effect whose outcome nobody knows, no result that a person has
replaced, and a commit in any case.
"""

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import msgspec

from interlock.core.effective_policy import policy_of
from interlock.kernel.errors import Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.plugins.agents.options import JOB, NAME, RUN
from interlock.plugins.agents.queries import (
    RunMove,
    RunNote,
    read_contract_text,
    read_meters_of_run,
    read_moves_of,
    read_notes_of,
    read_work_below,
)
from interlock.store.connection import Connection
from interlock.store.queries.recorded_steps import STEP
from interlock.store.queries.views import View, artifacts_of, view

SCHEMA = 1  # of decisions, and of the contracts that are understood
PASS, FAIL = "PASS", "FAIL"
NOT_COMPLETE, NOT_VALIDATED, VALIDATION_FAILED = "RUN_NOT_COMPLETE", "RUN_NOT_VALIDATED", "RUN_VALIDATION_FAILED"
UNPINNED, NO_CONTRACT, UNSUPPORTED = "RUN_COMMIT_UNPINNED", "EXECUTION_CONTRACT_MISSING", "UNSUPPORTED_CONTRACT"
NOT_READY = "RUN_V1_READY_UNPROVEN"
REASONS = (NOT_COMPLETE, NOT_VALIDATED, VALIDATION_FAILED, UNPINNED, NO_CONTRACT, UNSUPPORTED, NOT_READY)
VALID, INVALID = "valid", "invalid"
COMMIT = "commit"  # the member of a result, or the artifact, that names a commit
DIGITS = frozenset("0123456789abcdef")
VERDICTS = frozenset({"valid", "invalid", "correct", "optimize", "run"})  # what validators say
APPROVING = frozenset({"valid", "optimize"})  # of work that has passed


class ValidationFact(msgspec.Struct, frozen=True):
    """The last word of a validator about a run, and whose it was."""

    verdict: str  # valid or invalid
    by: str
    version: int  # of the run, with that move


class RunDecision(msgspec.Struct, frozen=True):
    """The decision about a run, and the facts that it is made of. `hash` is of all the rest, as key-sorted JSON."""

    schema: int
    run: str
    agent: str
    state: str
    contract: str | None  # its digest
    validation: ValidationFact | None
    commit: str | None
    steps: int
    record: str  # the SHA-256 of all results of steps, in order
    used: dict[str, int]  # in the parts that count
    strict: bool
    doubts: list[str]  # what a strict decision does not accept
    reasons: list[str]
    decision: str
    hash: str = ""


def read_decision(connection: Connection, tenant: int, unit: int, strict: bool = False) -> RunDecision | None:
    """Decides about an agent run, by what is recorded alone; None for what is no agent run."""
    try:
        run = view(connection, tenant, unit)
    except Unknown:
        return None
    if run.unit.lifecycle != RUN:
        return None
    notes = read_notes_of(connection, tenant, unit)
    jobs = [work for work in read_work_below(connection, tenant, unit) if work.lifecycle == JOB]
    last = view(connection, tenant, jobs[-1].id) if jobs else None
    memory = [] if last is None else read_notes_of(connection, tenant, last.unit.id)
    steps = [kept for kept in memory if kept.kind == STEP]
    options = [read_options(each) for each in (run, last) if each is not None]
    digest = find_contract(options[0], notes)
    facts = RunDecision(
        schema=SCHEMA, run=format_id(RUN, unit), agent=run.body.task, state=run.unit.state, contract=digest,
        validation=find_validation(read_moves_of(connection, tenant, unit)),
        commit=None if last is None else find_commit(connection, tenant, last), steps=len(steps),
        record=digest_record(steps), strict=strict, doubts=find_doubts(memory, notes), reasons=[], decision=FAIL,
        used={meter.name: meter.used for meter in read_meters_of_run(connection, tenant, unit)},
    )  # fmt: skip
    text = None if digest is None else read_contract_text(connection, tenant, digest)
    has_repository = any(each.get("repositories", {}).get("repo") for each in options)
    reasons = list_reasons(facts, text, run.unit.outcome == Category.SUCCESS, has_repository)
    decided = msgspec.structs.replace(facts, reasons=reasons, decision=FAIL if reasons else PASS)
    return msgspec.structs.replace(decided, hash=digest_decision(decided))


def read_options(unit: View) -> dict[str, Any]:
    """What a unit says to plugins, by their names."""
    options: dict[str, Any] = msgspec.json.decode(policy_of(unit.body).options or "{}")
    return options


def list_reasons(facts: RunDecision, text: str | None, is_complete: bool, has_repository: bool) -> list[str]:
    """Why a decision is FAIL; none: it is PASS. Pure."""
    verdict = None if facts.validation is None else facts.validation.verdict
    missing = {
        NOT_COMPLETE: not is_complete,
        NOT_VALIDATED: verdict is None,
        VALIDATION_FAILED: verdict == INVALID,
        UNPINNED: has_repository and facts.commit is None,
        NO_CONTRACT: facts.contract is None or text is None,
        UNSUPPORTED: facts.contract is not None and text is not None and not is_understood(text, facts.contract),
        NOT_READY: facts.strict and bool(facts.doubts or facts.commit is None),
    }
    return [reason for reason in REASONS if missing[reason]]


def digest_decision(decision: RunDecision) -> str:
    """The SHA-256 of a decision without its hash, as key-sorted JSON."""
    core = {name: value for name, value in msgspec.structs.asdict(decision).items() if name != "hash"}
    return sha256(msgspec.json.encode(core, order="sorted")).hexdigest()


def digest_record(steps: Iterable[RunNote]) -> str:
    """The SHA-256 of what was recorded, in order: the names of steps, and the digests of their results."""
    lines = (f"{sha256(step.payload.encode()).hexdigest()} {step.name}\n" for step in steps)
    return sha256("".join(lines).encode()).hexdigest()


def find_contract(options: dict[str, Any], notes: Iterable[RunNote]) -> str | None:
    """The digest of the contract that a run has now; None if it has none."""
    given = options.get(NAME, {}).get("contract")
    changed = [msgspec.json.decode(kept.payload)["contract"] for kept in notes if kept.kind == "contract"]
    digest = (changed[-1] if changed else given or {}).get("digest")
    return None if digest is None else str(digest)


def is_understood(text: str, digest: str) -> bool:
    """Whether a stored contract is the one of its digest, with a schema that is known here."""
    if sha256(text.encode()).hexdigest() != digest:
        return False
    try:
        return bool(msgspec.json.decode(text).get("schema") == SCHEMA)
    except (msgspec.MsgspecError, AttributeError):
        return False


def find_validation(moves: Iterable[RunMove]) -> ValidationFact | None:
    """The last word of a validator; one before a resume was about another result, and a phase of the holder is none."""
    verdict: ValidationFact | None = None
    is_judged = False
    for move in moves:
        facts = msgspec.json.decode(move.payload or "null") or {}
        if is_judged and move.trigger in VERDICTS and "fence" not in facts:
            word = facts.get("verdict") or (VALID if move.trigger in APPROVING else INVALID)
            verdict = ValidationFact(word, move.actor, move.version)
        elif move.trigger == "resume":
            verdict = None
        is_judged = move.trigger == "check"
    return verdict


def find_commit(connection: Connection, tenant: int, job: View) -> str | None:
    """The commit that the result of a job names, or an artifact of that name; None if nothing does."""
    result = msgspec.json.decode(job.body.result or "null")
    named = read_hash(result.get(COMMIT) if isinstance(result, dict) else None)
    kept = [each for each in artifacts_of(connection, tenant, job.unit.id) if each.name == COMMIT]
    return named or (read_hash(msgspec.json.decode(kept[-1].data)) if kept else None)


def read_hash(value: Any) -> str | None:
    """A git hash; None for what is none."""
    return value if isinstance(value, str) and len(value) in (40, 64) and DIGITS.issuperset(value) else None


def find_doubts(memory: Iterable[RunNote], notes: Iterable[RunNote]) -> list[str]:
    """What a strict decision does not accept: effects whose outcome nobody knows, and results that were replaced."""
    counts = Counter[str]()
    for kept in memory:
        if kept.kind == "effect":
            counts[kept.name] += 1 if msgspec.json.decode(kept.payload)["state"] == "begun" else -1
        elif kept.kind == "effect_result":
            counts[kept.name] = -(10**9)
    open_effects = [f"the effect '{name}' is open" for name, count in sorted(counts.items()) if count > 0]
    replaced = [f"the result of '{kept.name}' was replaced" for kept in notes if kept.kind == "replaced"]
    return [*open_effects, *replaced]
