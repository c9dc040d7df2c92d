"""Agent runs over HTTP: submit one, look at what it has recorded and used, resume and fork it.

Everything that a run has under `/v1/runs/{id}` (why, events, cost, cancel, pause and so on) an agent run has there too.
A resume is under both paths: 202 when the run is queued again, 200 when the same request has done that before, and 409
in every state but failed and cancelled.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from interlock.client import responses
from interlock.client.agent_records import (
    MeterResponse,
    TranscriptEntryResponse,
    describe_entry,
    describe_meter,
)
from interlock.client.budgets import list_meters
from interlock.client.durations import format_time
from interlock.kernel.budgets import GivenCap, parse_caps
from interlock.kernel.commands import Decide, Fork, MeterStatus, Work
from interlock.kernel.errors import Unknown
from interlock.kernel.ids import format_id
from interlock.plugins.agents.contracts import MISMATCH, ContractMismatch
from interlock.plugins.agents.decisions import RESUME
from interlock.plugins.agents.governance import RunDecision, read_decision
from interlock.plugins.agents.options import JOB, RUN, AgentOptions, ContractTerms, read_agent_options
from interlock.plugins.agents.queries import (
    RunContract,
    find_resume_cause,
    read_agent_steps,
    read_contract_of_run,
    read_meters_of_run,
)
from interlock.plugins.agents.transcripts import read_transcript
from interlock.plugins.agents.works import make_works
from interlock.server.errors import ApiError
from interlock.server.jobs import make_action_response, make_again_reply, submit_work
from interlock.server.operations import Operation, Reply, Request, with_short_paths
from interlock.server.request_schemas import (
    Count,
    Labels,
    Name,
    Priority,
    ReasonRequest,
    Seconds,
    Short,
    Strict,
    encode_json,
    to_microseconds,
)
from interlock.store.connection import Connection
from interlock.store.queries.views import view

STEPS_MAX = 200  # of a page
Budget = dict[Name, float | GivenCap]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
GivenContract = Digest | dict[str, Any]
Validation = Literal["off", "warn", "enforce"]
CapCount = Annotated[int, Meta(ge=0, le=1_000)]


class AgentRunRequest(Strict, frozen=True, kw_only=True):
    """A run of an agent, once under its key. Amounts of `budget` are as in {"usd": 5, "tokens": 400000}."""

    agent: Name
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    key: Name | None = None
    priority: Priority = 0
    labels: Labels = msgspec.field(default_factory=dict)
    correlation: Short = ""
    trace: Short = ""
    queue: Name | None = None  # that of its agent, or else "default"
    attempts: Count | None = None
    timeout_seconds: Seconds | None = None  # of the run, without its waits; by default an hour
    budget: Budget | None = None
    corrections: CapCount | None = None
    optimizations: CapCount | None = None
    validation: Validation | None = None
    contract: GivenContract | None = None  # by default the one that a program has told of the agent last
    options: dict[str, Any] | None = None  # of other plugins, by name, such as checks


class ResumeRequest(ReasonRequest, frozen=True, kw_only=True):
    """Why it goes on, and what it may use from now on.

    It keeps its contract. If it names another one, that is refused with the difference, unless it says `override`.
    """

    budget: Budget = msgspec.field(default_factory=dict)
    contract: GivenContract | None = None
    override: bool = False


class ForkRequest(ReasonRequest, frozen=True, kw_only=True):
    """The step to repeat, and other results for steps up to it."""

    at: Name
    replace: Annotated[dict[Name, Any], Meta(max_length=1_000)] = msgspec.field(default_factory=dict)
    contract: Digest | None = None  # by default the newest of the agent


class StepsQuery(Strict, frozen=True, kw_only=True):
    """Steps, from a place on."""

    first: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    limit: Annotated[int, Meta(ge=1, le=STEPS_MAX)] = 50


class DecisionQuery(Strict, frozen=True, kw_only=True):
    """With `strict`, what is in doubt fails too."""

    strict: bool = False


class AgentStepResponse(msgspec.Struct):
    """A step that a run has recorded; a result over 256 KiB names a blob."""

    name: str
    result: Any
    recorded_at: str | None
    job: str


class AgentStepsResponse(msgspec.Struct):
    """A page of steps, in their order; `next` is the `first` of the next page, null at the end."""

    steps: list[AgentStepResponse]
    next: int | None


class TranscriptResponse(msgspec.Struct):
    """A page of what became of a run, in order; `next` is the `first` of the next page, null at the end."""

    entries: list[TranscriptEntryResponse]
    next: int | None


class MetersResponse(msgspec.Struct):
    """What a run and all below it have used, and may use, by name."""

    meters: list[MeterResponse]


# Making.


async def submit_run(request: Request) -> Reply:
    """Submits a run with its first job."""
    (made, *_), status = await submit_work(request, list_works(request.body))
    return Reply(made, status)


def list_works(body: AgentRunRequest) -> list[Work]:
    """Lists the work of a run and of its job.

    Raises:
        InterlockError: a budget that could never hold.
    """
    budget = parse_caps(body.budget) if body.budget else None
    own = AgentOptions(body.corrections, body.optimizations, budget, body.validation, make_terms(body.contract))
    return make_works(
        body.agent, encode_json(body.arguments), own, key=body.key, queue=body.queue, attempts=body.attempts,
        timeout_us=to_microseconds(body.timeout_seconds), options=body.options, priority=body.priority,
        labels=encode_json(body.labels), correlation=body.correlation, trace=body.trace,
    )  # fmt: skip


def make_terms(given: str | dict[str, Any] | None) -> ContractTerms | None:
    """The contract that a submit names, as its work says it."""
    if given is None:
        return None
    return ContractTerms(digest=given) if isinstance(given, str) else ContractTerms(text=encode_json(given))


# Looking.


async def list_agent_steps(request: Request) -> AgentStepsResponse:
    """Lists the steps that a run has recorded, those of its earlier jobs too."""
    query: StepsQuery = request.query
    steps = await request.read(read_agent_steps, await request.find_unit(RUN), query.first, query.limit + 1)
    page = [
        AgentStepResponse(step.name, msgspec.json.decode(step.result), format_time(step.at), format_id(JOB, step.job))
        for step in steps[: query.limit]
    ]
    return AgentStepsResponse(page, query.first + query.limit if len(steps) > len(page) else None)


async def show_transcript(request: Request) -> TranscriptResponse:
    """Tells what became of a run, in order."""
    query: StepsQuery = request.query
    entries = await request.read(read_transcript, await request.find_unit(RUN), query.first, query.limit + 1)
    page = [describe_entry(entry) for entry in entries[: query.limit]]
    return TranscriptResponse(page, query.first + query.limit if len(entries) > len(page) else None)


async def show_budget(request: Request) -> MetersResponse:
    """Shows what a run has used and may use."""
    meters = await request.read(read_all_meters_of_run, await request.find_unit(RUN))
    return MetersResponse([describe_meter(meter) for meter in meters])


def read_all_meters_of_run(connection: Connection, tenant: int, unit: int) -> list[MeterStatus]:
    """What a run has used and may use, also of what it has not used yet."""
    caps = read_agent_options(view(connection, tenant, unit).body).budget or {}
    return list_meters(read_meters_of_run(connection, tenant, unit), caps)


async def show_contract(request: Request) -> RunContract:
    """Shows the contract of a run."""
    contract = await request.read(read_contract_of_run, await request.find_unit(RUN))
    assert contract is not None, "it is an agent run"
    return contract


async def show_decision(request: Request) -> RunDecision:
    """Decides about a run, by what is recorded alone."""
    query: DecisionQuery = request.query
    decision = await request.read(read_decision, await request.find_unit(RUN), query.strict)
    assert decision is not None, "it is an agent run"
    return decision


# What operators do.


async def resume(request: Request) -> Reply:
    """Lets a run go on that has failed or was cancelled."""
    unit, body = await request.find_run(), request.body
    given = {name: value for name in ("budget", "contract", "override") if (value := getattr(body, name))}
    terms = encode_json(given) if given else "null"
    try:
        standing = await request.send(Decide(unit=unit, trigger=RESUME, reason=body.reason, data=terms))
    except ContractMismatch as other:
        raise ApiError(409, str(other), code=MISMATCH, difference=other.difference) from None
    except Unknown as missing:
        raise ApiError(404, str(missing)) from None  # its state may be seen, and so may the digests of contracts
    own = await request.read(find_resume_cause, unit) == request.request_id
    return Reply(await make_action_response(request, standing), 202 if own else 200)


async def fork(request: Request) -> Reply:
    """Makes a new run that goes on from a recorded step."""
    unit, body = await request.find_unit(RUN), request.body
    results = {name: encode_json(value) for name, value in body.replace.items()}
    try:
        made = await request.send(
            Fork(unit=unit, at=body.at, replace=results, reason=body.reason, contract=body.contract)
        )
    except Unknown as missing:
        raise ApiError(404, str(missing)) from None  # whoever may see the run may know the names of its steps
    return await make_again_reply(request, made)


PATH = "/v1/agent-runs/{id}"
RESUME_RUN = Operation(
    method="POST", path="/v1/runs/{id}/resume", scope="operate", summary="Resume a run", call=resume,
    body=ResumeRequest, response=responses.ActionResponse, status=202, other_statuses=(200,),
)  # fmt: skip
ROUTES = (
    *with_short_paths((RESUME_RUN,)),
    msgspec.structs.replace(RESUME_RUN, path=f"{PATH}/resume"),
    Operation(
        method="POST", path="/v1/agent-runs", scope="submit", summary="Submit a run of an agent", call=submit_run,
        body=AgentRunRequest, response=responses.SubmitResponse, status=201, other_statuses=(200,),
    ),
    Operation(
        method="GET", path=f"{PATH}/steps", scope="read", summary="List what an agent run has recorded",
        call=list_agent_steps, query=StepsQuery, response=AgentStepsResponse,
    ),
    Operation(
        method="GET", path=f"{PATH}/transcript", scope="read", summary="Show the transcript of an agent run",
        call=show_transcript, query=StepsQuery, response=TranscriptResponse,
    ),
    Operation(
        method="GET", path=f"{PATH}/budget", scope="read", summary="Show what an agent run has used, and may use",
        call=show_budget, response=MetersResponse,
    ),
    Operation(
        method="GET", path=f"{PATH}/contract", scope="read", summary="Show the contract of an agent run",
        call=show_contract, response=RunContract,
    ),
    Operation(
        method="GET", path=f"{PATH}/decision", scope="read", summary="Decide about an agent run, by its record alone",
        call=show_decision, query=DecisionQuery, response=RunDecision,
    ),
    Operation(
        method="POST", path=f"{PATH}/fork", scope="operate", summary="Make a new run that goes on from a recorded step",
        call=fork, body=ForkRequest, response=responses.SubmitResponse, status=201, other_statuses=(200,),
    ),
)  # fmt: skip
