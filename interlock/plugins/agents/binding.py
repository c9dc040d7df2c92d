"""Contracts of runs: bound when a run is made, asked of whoever works for it, and changed only by an explicit word.

What a run has been bound to stays (*persisted*). A run that is made is bound to the contract that its submit names
(*request*; a program has filled it in, from its *environment* where it says nothing itself, which is recorded), or else
to the one that a program has told of its agent last (*default*); to none if there is none.

The job of a bound run needs a worker with the capability `contract:DIGEST`, which workers have of the agents that they
know. So a program with another prompt is not offered the run, and fails nothing. What is stored under a digest and does
not come to it, or is of a kind that is not known here, fails the run when somebody would work for it, before any of
its handler runs.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from interlock.core.advance import Stamp, advance, change
from interlock.core.notes import note
from interlock.kernel.budgets import ACTIVE
from interlock.kernel.commands import DefineContract, Planned, Submit, Submitted, Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Unit, WorkerRow
from interlock.plugins.agents.contracts import (
    CAPABILITY,
    DIGEST_SHOWN,
    Contract,
    ContractMismatch,
    describe_difference,
    digest_lifecycles,
    digest_text,
    encode_contract,
    find_fault,
    parse_contract,
)
from interlock.plugins.agents.options import JOB, NAME, RUN, AgentOptions, ContractTerms, read_agent_options
from interlock.plugins.agents.queries import (
    keep_contract,
    read_contract_text,
    read_contract_texts,
    read_newest_contract,
)
from interlock.store.queries.for_verbs import find_or_make_lane, load_lanes, load_open_children, read_notes
from interlock.store.unit_of_work import UnitOfWork

CONTRACT = "contract"  # the kind of note that says that a run has another contract from now on
TERMS = ("corrections", "optimizations", "validation")  # of a contract, that a run has as options
CHECKS = "checks"  # the option of work that says what checks it
CLOCK_MAX_US = 10 * 365 * 86_400 * 1_000_000  # of a run that its budget ends


class ToAgents(msgspec.Struct, frozen=True):
    """What work says to this plugin, among its options."""

    agents: AgentOptions = AgentOptions()


# A run is made.


def prepare_agent_work(tx: UnitOfWork, work: Work, parent: Unit | None) -> Work:
    """Work as it is made: a run with its contract, its job for workers that have it, and the rest decides nothing."""
    if work.lifecycle == RUN:
        return bind_contract(tx, leave_clock_to_budget(work))
    if parent is None or parent.lifecycle != RUN:
        return work
    if work.lifecycle != JOB:  # approvals, helpers and whatever else is made below a run do not decide it
        return msgspec.structs.replace(work, decides=False) if work.decides else work
    terms = read_agent_options(tx.body(parent)).contract
    if terms is None:
        return work
    return msgspec.structs.replace(work, capabilities=(*work.capabilities, name_capability(terms.digest)))


def leave_clock_to_budget(work: Work) -> Work:
    """A run with a cap of active time, and without a time limit of its own, is ended by that cap and not by an hour."""
    own = AgentOptions() if work.options is None else msgspec.json.decode(work.options, type=ToAgents).agents
    active = (own.budget or {}).get(ACTIVE)
    if work.timeout_us is not None or active is None or active.hard is None:
        return work
    return msgspec.structs.replace(work, timeout_us=CLOCK_MAX_US)


def name_capability(digest: str) -> str:
    """The capability that a worker has which may work under a contract."""
    return CAPABILITY + digest


def bind_contract(tx: UnitOfWork, work: Work) -> Work:
    """The work of a run, with its contract by digest, and with the terms of that.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    options = {} if work.options is None else msgspec.json.decode(work.options)
    own = msgspec.convert(options.get(NAME, {}), AgentOptions)
    chosen = choose_contract(tx, work, own.contract)
    if chosen is None:
        return work
    digest, text = chosen
    contract = None if find_fault(text, digest) else parse_contract(text)
    own = msgspec.structs.replace(
        own if contract is None else take_terms(own, contract),
        contract=ContractTerms(digest, environment=own.contract.environment if own.contract else ()),
    )
    if contract is not None and contract.checks is not None and CHECKS not in options:
        options[CHECKS] = {"jobs": contract.checks}
    return msgspec.structs.replace(work, options=msgspec.json.encode({**options, NAME: own}).decode())


def choose_contract(tx: UnitOfWork, work: Work, terms: ContractTerms | None) -> tuple[str, str] | None:
    """The digest and the text of the contract that a run is bound to.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if terms is None:
        return read_newest_contract(tx.connection, tx.tenant, work.task)
    if not terms.text:
        text = read_contract_text(tx.connection, tx.tenant, terms.digest)
        if text is None:
            raise Unknown(
                f"no contract '{terms.digest[:DIGEST_SHOWN]}' is stored; allowed is the digest of one that is"
            )
        return terms.digest, text
    text = complete_contract(tx, work.task, terms.text)
    if terms.digest and terms.digest != digest_text(text):
        raise InterlockError(
            f"the contract comes to {digest_text(text)[:DIGEST_SHOWN]}, and not to {terms.digest[:DIGEST_SHOWN]}"
        )
    keep_contract(tx, work.task, digest_text(text), text, is_newest=False)
    return digest_text(text), text


def read_stored(tx: UnitOfWork, digest: str) -> str:
    """The text of a contract that somebody names by its digest.

    Raises:
        Unknown: there is none.
    """
    text = read_contract_text(tx.connection, tx.tenant, digest)
    if text is None:
        raise Unknown(f"no contract '{digest[:DIGEST_SHOWN]}' is stored; allowed is the digest of one that is")
    return text


def complete_contract(tx: UnitOfWork, agent: str, text: str) -> str:
    """The text of a contract as it is kept.

    Raises:
        InterlockError: one of another agent.
    """
    contract = parse_contract(text)
    if contract is None:
        return encode_contract(msgspec.json.decode(text))
    if contract.agent != agent:
        raise InterlockError(f"the contract is that of '{contract.agent}', and the run is one of '{agent}'")
    lifecycle = contract.lifecycle or digest_lifecycles(tx.lifecycles, (RUN, JOB))
    return encode_contract(msgspec.structs.replace(contract, lifecycle=lifecycle))


def take_terms(own: AgentOptions, contract: Contract) -> AgentOptions:
    """The options of a run with the terms of its contract.

    Raises:
        InterlockError: it was given others.
    """
    for name in TERMS:
        given, agreed = getattr(own, name), getattr(contract, name)
        if given is not None and given != agreed:
            raise InterlockError(
                f"{name} = {given!r} is not allowed; the contract of '{contract.agent}' says {agreed!r}"
            )
    return msgspec.structs.replace(own, **{name: getattr(contract, name) for name in TERMS})


def define_contract(tx: UnitOfWork, command: DefineContract) -> Planned:
    """A program tells which contract its agent has now.

    Raises:
        InterlockError: one that is not understood.
    """
    contract = parse_contract(command.text)
    if contract is None:
        raise InterlockError("the contract is of a schema that is not known here")
    text = complete_contract(tx, contract.agent, command.text)
    is_new = read_newest_contract(tx.connection, tx.tenant, contract.agent) != (digest_text(text), text)
    if is_new:
        keep_contract(tx, contract.agent, digest_text(text), text, is_newest=True)
    return Planned(contract.agent, changed=is_new)


# Somebody would work for it.


def find_bound_digest(tx: UnitOfWork, job: Unit) -> str:
    """The digest of the contract that a job needs of its worker; empty if it needs none."""
    lane = load_lanes(tx, tx.tenant).find(job.lane) if job.lifecycle == JOB else None
    words = [] if lane is None else lane.capabilities.split(",")
    return next((word.removeprefix(CAPABILITY) for word in words if word.startswith(CAPABILITY)), "")


def fail_broken(tx: UnitOfWork, worker: WorkerRow, units: Sequence[Unit]) -> Collection[int]:
    """Jobs that a claim has found, and under whose contracts nothing may be run: their runs fail, nobody gets them."""
    bound = [(job, digest) for job in units if (digest := find_bound_digest(tx, job))]
    digests = {digest for _, digest in bound}
    texts = read_contract_texts(tx.connection, tx.tenant, digests) if digests else {}
    faults = {digest: find_fault(texts.get(digest), digest) for digest in digests}
    broken = [(job, faults[digest]) for job, digest in bound if faults[digest]]
    for job, fault in broken:
        fail_job(tx, job, fault)
    return [job.id for job, _ in broken]


def fail_job(tx: UnitOfWork, job: Unit, text: str) -> None:
    """The job of a run, which nobody holds, fails for this reason, and its run with it."""
    body = tx.body(job)
    body.error = text
    tx.change(body)
    trigger = "exhaust" if tx.lifecycle(job).allows(job.state, "exhaust") else "cancel"
    advance(tx, job, trigger, Stamp("engine", text), payload={"error": text})


def fail_unsupported(tx: UnitOfWork, command: Submit, made: Sequence[Submitted]) -> None:
    """Runs that were just made with a contract which is not understood here fail at once (A0-10)."""
    for each in made:
        if each.lifecycle != JOB or not each.created:
            continue
        job = tx.rows.units[each.unit]
        digest = find_bound_digest(tx, job)
        fault = find_fault(read_contract_text(tx.connection, tx.tenant, digest), digest) if digest else ""
        if fault:
            fail_job(tx, job, fault)


def hand_over_contracts(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, str]]:
    """What a worker is told of jobs: the contract that it works under, which it compares with its own."""
    return {job.id: {"contract": digest} for job in units if (digest := find_bound_digest(tx, job))}


# It is changed.


def find_contract_digest(tx: UnitOfWork, run: Unit) -> str:
    """The digest of the contract that a run has now; empty if it has none."""
    changed = read_notes(tx, [run.id], CONTRACT)
    if changed:
        return str(msgspec.json.decode(changed[-1].payload)["contract"]["digest"])
    terms = read_agent_options(tx.body(run)).contract
    return "" if terms is None else terms.digest


def find_wanted_contract(tx: UnitOfWork, agent: str, wanted: Any) -> tuple[str, str]:
    """The digest and the text of a contract that somebody names, or else of the newest.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if wanted is None:
        newest = read_newest_contract(tx.connection, tx.tenant, agent)
        if newest is None:
            raise InterlockError(f"no program has told a contract of '{agent}', so there is none to go on with")
        return newest
    if isinstance(wanted, str):
        return wanted, read_stored(tx, wanted)
    text = complete_contract(tx, agent, msgspec.json.encode(wanted).decode())
    return digest_text(text), text


def settle_contract(tx: UnitOfWork, run: Unit, wanted: Any, actor: str, *, override: bool) -> None:
    """A run that is resumed keeps its contract, unless its new job shall work under another one.

    Raises:
        ContractMismatch: it names another one, and does not say that it overrides: the text says in what they differ.
    """
    if wanted is None and not override:
        return
    before = find_contract_digest(tx, run)
    digest, text = find_wanted_contract(tx, tx.body(run).task, wanted)
    if digest == before:
        return
    if not override:
        old = read_contract_text(tx.connection, tx.tenant, before) if before else None
        lines = describe_difference(old or "{}", text)
        raise ContractMismatch(
            f"{format_id(run.lifecycle, run.id)} has the contract {before[:DIGEST_SHOWN] or 'none'}, and "
            f"{digest[:DIGEST_SHOWN]} is another one ({'; '.join(lines)}); override it, or fork the run",
            lines,
        )
    change_contract(tx, run, digest, text, actor)


def change_contract(tx: UnitOfWork, run: Unit, digest: str, text: str, actor: str) -> None:
    """A run has another contract from now on, and so has its job, which nobody holds; who did so is noted.

    Raises:
        InterlockError: nothing may be run under that contract.
    """
    if fault := find_fault(text, digest):
        raise InterlockError(fault)
    keep_contract(tx, tx.body(run).task, digest, text, is_newest=False)
    was = find_contract_digest(tx, run) or None
    origin = {"contract": {"digest": digest}, "was": was, "by": actor}
    note(tx, run.id, CONTRACT, msgspec.json.encode(origin).decode())
    for job in load_open_children(tx, run.id):
        if job.lifecycle == JOB:
            move_to_lane(tx, job, digest)


def move_to_lane(tx: UnitOfWork, job: Unit, digest: str) -> None:
    """A job that was just made waits for workers with this contract, and not for those of the job before it."""
    lane = load_lanes(tx, tx.tenant).find(job.lane)
    assert lane is not None, "it has a lane"
    others = [word for word in lane.capabilities.split(",") if word and not word.startswith(CAPABILITY)]
    change(tx, job, lane=find_or_make_lane(tx, tx.tenant, lane.queue, [*others, name_capability(digest)], lane.task))


def list_terms(tx: UnitOfWork, run: Unit) -> AgentOptions:
    """What a run has agreed to: its options, with the terms of the contract that it has now."""
    own = read_agent_options(tx.body(run))
    changed = read_notes(tx, [run.id], CONTRACT)
    if not changed:
        return own
    digest = msgspec.json.decode(changed[-1].payload)["contract"]["digest"]
    text = read_contract_text(tx.connection, tx.tenant, digest)
    contract = None if text is None or find_fault(text, digest) else parse_contract(text)
    return (
        own if contract is None else msgspec.structs.replace(own, **{name: getattr(contract, name) for name in TERMS})
    )
