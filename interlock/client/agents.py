"""Agents: `@app.agent` makes a handler whose runs are durable; `AgentRun` is such a run as its submitter sees it.

A run (document 000) is worked on by one job at a time. What the job records is there after a lost worker, and after
`run.resume(by=…, reason=…)`, which lets a failed or cancelled run go on with a new job.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.agent_records import TranscriptEntryResponse, describe_entry, read_all_entries
from interlock.client.agent_tools import describe_tool
from interlock.client.arguments import refuse_numbers_without_value
from interlock.client.async_pairs import Call, verb
from interlock.client.blobs import unpack
from interlock.client.budgets import RunBudget, check_budget, describe_caps, list_meters
from interlock.client.exceptions import Failed
from interlock.client.runs import Run
from interlock.client.tasks import Task, parse_list
from interlock.client.workstream_works import encode_checks, make_check
from interlock.core.effective_policy import option_of
from interlock.core.validation import check_range
from interlock.kernel.budgets import Cap, present_amount
from interlock.kernel.commands import LOCAL, Decide, DefineContract, Fork, MeterStatus, Standing, Submit, Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.lifecycle import Category
from interlock.plugins.agents.contracts import (
    CAPABILITY,
    OFF,
    Contract,
    check_contract,
    digest_lifecycles,
    digest_text,
    encode_contract,
)
from interlock.plugins.agents.governance import RunDecision, read_decision
from interlock.plugins.agents.options import (
    CAP_MAX,
    JOB,
    NAME,
    RUN,
    WORKER,
    AgentOptions,
    ContractTerms,
    check_agent,
)
from interlock.plugins.agents.queries import read_agent_steps, read_meters_of_run
from interlock.store.queries.views import UnitSummary, View, children_of, last_event, view

if TYPE_CHECKING:
    from interlock.client.app import App

OPTIONS = ("key", "on_duplicate", "priority", "labels", "delay", "at", "correlation", "trace", "budget")  # of a submit
# Fields of the job that the run has. Its clocks are those of the run: they stand while it waits.
OF_RUN = ("key", "on_duplicate", "labels", "correlation", "trace", "priority", "timeout_us", "queue_timeout_us")
ENVIRONMENT = "INTERLOCK_AGENT_"  # how the variables begin that say what a program leaves out, as in …MODEL
TEXTS, COUNTS = ("model", "version", "instructions"), ("corrections", "optimizations")  # of a contract


class Agent:
    """A handler whose runs are agent runs. Called like the function that it is, it runs here and now.

    `contract` is what a run of it is promised, and `digest` the SHA-256 of that; `environment` has those of its fields
    that come from environment variables.
    """

    def __init__(self, task: Task[Any, Any], budget: RunBudget | None, terms: dict[str, Any]) -> None:
        """`terms` are the fields of its contract.

        Raises:
            InterlockError: rules that could never hold.
        """
        self.task, self.app, self.name = task, task.app, task.name
        self.__name__, self.__doc__ = task.name, task.__doc__
        try:
            self.environment = read_environment(terms)
            self.tools = {describe_tool(each).name: each for each in parse_list("tools", terms["tools"])}
            self.contract = make_contract(task, terms)
            self.text = encode_contract(self.contract)
            self.digest = digest_text(self.text)
            own_terms = ContractTerms(text=self.text, environment=self.environment)
            self.own = AgentOptions(budget=dict(budget.caps) if budget else None, contract=own_terms)
            check_agent(task.app.lifecycles, self.make_run(task.plain_work))
            check_counts(self.contract)
        except InterlockError as wrong:
            raise InterlockError(f"agent '{task.name}': {wrong}") from None
        task.agent = self

    @property
    def definition(self) -> DefineContract:
        """What the database must know of its contract."""
        return DefineContract(tenant=self.app.tenant, text=self.text)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.task.handler(*args, **kwargs)

    @verb
    def submit(self, *args: Any, **kwargs: Any) -> "Call[AgentRun]":
        """Submits a run with these arguments; when it returns, the run is durable.

        Options are `key`, `on_duplicate` (return or reject), `priority`, `labels`, `delay`, `at`, `correlation`,
        `trace` and `budget` (`interlock.budget(…)`, instead of that of the agent).

        Raises:
            InterlockError: an argument or an option is wrong; the text names it.
        """
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        work = self.make_works(args, kwargs, options)
        return Call(self.app, Submit(tenant=self.app.tenant, work=work), self.make_handle)

    def make_works(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> tuple[Work, Work]:  # fmt: skip
        """Makes the work of a run and of its job.

        Raises:
            InterlockError: a wrong argument or option.
        """
        if options.get("on_duplicate") == "replace":
            raise InterlockError("on_duplicate = 'replace' is not allowed for an agent; allowed are return and reject")
        budget = check_budget(options.pop("budget", None))
        (job,) = self.task.make_submit([(args, kwargs)], options).work
        others = {"key": None, "on_duplicate": "return", "lifecycle": JOB, "parent": RUN, "step": WORKER}
        return self.make_run(job, budget), msgspec.structs.replace(job, **others)

    def make_run(self, job: Work, budget: RunBudget | None = None) -> Work:
        """Makes the work of a run from that of its job; `budget` has other caps than those of the agent."""
        own = self.own if budget is None else msgspec.structs.replace(self.own, budget=dict(budget.caps))
        options = msgspec.json.encode({NAME: own}).decode()
        fields = {name: getattr(job, name) for name in OF_RUN}
        return Work(task=self.name, lifecycle=RUN, ref=RUN, input=job.input, options=options, **fields)

    def make_handle(self, made: Any) -> "AgentRun":
        return AgentRun(self.app, made[0].unit, created=made[0].created, lifecycle=made[0].lifecycle)


class AgentRun(Run):
    """A run of an agent. It goes on existing whatever becomes of this object; `app.run(id)` finds it again."""

    @property
    def steps(self) -> dict[str, Any]:
        """What each step that it has recorded came to, by name, in their order; those of earlier jobs too."""
        steps = self.app.read(read_agent_steps, self.unit)
        return {step.name: msgspec.json.decode(unpack(self.app, step.result)) for step in steps}

    @property
    def spent(self) -> dict[str, float]:
        """What it and all below it have used, by name: `usd`, `tokens`, `steps`, `active` (seconds) and others."""
        return {meter.name: present_amount(meter.name, meter.used) for meter in self.read_meters()}

    def left(self, name: str) -> float | None:
        """How much of something it may use still; None if there is no cap."""
        meter = next((meter for meter in self.read_meters() if meter.name == name), None)
        return None if meter is None or meter.hard is None else present_amount(name, max(0, meter.hard - meter.used))

    def transcript(self) -> list[TranscriptEntryResponse]:
        """Tells what became of it, in order: phases, steps with what they used, questions, answers, ends."""
        return [describe_entry(entry) for entry in read_all_entries(self.app, self.unit)]

    def decision(self, *, strict: bool = False) -> RunDecision:
        """Decides about it by what is recorded alone: `decision` is PASS or FAIL, with `reasons` and a `hash`.

        Raises:
            Unknown: there is no such agent run.
        """
        decided: RunDecision | None = self.app.read(read_decision, self.unit, strict)
        if decided is None:
            raise Unknown(f"{self.id} is no agent run")
        return decided

    def read_meters(self) -> list[MeterStatus]:
        """Reads what it has used and may use, by name; a cap of something that it has not used is among them."""
        return list_meters(self.app.read(read_meters_of_run, self.unit), self.read_budget())

    def read_budget(self) -> dict[str, Cap]:
        """Reads the budget that it was submitted with."""
        return (option_of(self.app.read(view, self.unit).body, NAME, AgentOptions) or AgentOptions()).budget or {}

    @verb
    def resume(
        self, *, by: str, reason: str, budget: RunBudget | Mapping[str, Any] | None = None,
        contract: "Agent | str | None" = None, override: bool = False,
    ) -> Call[Standing]:  # fmt: skip
        """Lets a run that failed or was cancelled go on, with a new job that has everything that was recorded.

        `budget` are other caps of it, as in `{"usd": 10}` or `interlock.budget(usd=10, soft=8)`. It keeps its contract.
        With `override` it goes on under another one: that of an agent, that of a digest, or else the newest.

        Raises:
            Refused: it has not failed, and was not cancelled.
            NotWanted: it names another contract, and does not override; the text says in what they differ.
            InterlockError: the name or the reason is empty, or a cap is below what is used.
        """
        given: dict[str, Any] = {} if budget is None else {"budget": describe_caps(budget)}
        if contract is not None:
            given["contract"] = contract.contract if isinstance(contract, Agent) else contract
        if override:
            given["override"] = True
        terms = msgspec.json.encode(given).decode() if given else "null"
        command = Decide(
            tenant=self.app.tenant, unit=self.unit, trigger="resume", actor=by, reason=reason, data=terms
        )  # fmt: skip
        return Call(self.app, command)

    @verb
    def fork(
        self, *, at: str, replace: Mapping[str, Any] | None = None, by: str = LOCAL, reason: str = "",
        contract: str | None = None,
    ) -> "Call[AgentRun]":  # fmt: skip
        """Makes a new run that goes on from a recorded step, with all that was recorded before it.

        The step itself is done again, unless `replace` has a result for it; it may have results of earlier steps too.
        Its contract is that of the digest `contract`, or else the newest of its agent.

        Raises:
            Unknown: no such step is recorded.
            InterlockError: a result is no JSON, or that of a later step.
        """
        if not isinstance(replace or {}, Mapping):
            raise InterlockError(f'replace = {replace!r:.80} is not allowed; allowed is one such as {{"plan": 1}}')
        texts = {name: encode_result(name, value) for name, value in (replace or {}).items()}
        command = Fork(
            tenant=self.app.tenant, unit=self.unit, at=at, replace=texts, actor=by, reason=reason, contract=contract
        )
        return Call(self.app, command, lambda made: AgentRun(self.app, made.unit, created=True, lifecycle=RUN))

    def decode_result(self, ended: UnitSummary) -> Any:
        """Returns what its handler returned.

        Raises:
            Failed: it ended without success.
        """
        job = self.read_job()
        if ended.outcome != Category.SUCCESS:
            raise Failed(self.id, ended.state, (job.body.error if job else None) or self.describe_end(ended))
        result = job.body.result if job else None
        return None if result is None else msgspec.json.decode(unpack(self.app, result))

    def describe_end(self, ended: UnitSummary) -> str:
        """Says what ended it, if its job has no error: its clock, or somebody who stopped it."""
        last = self.app.read(last_event, ended.unit)
        if last is None:
            return ""
        return "its time was over" if last.trigger == "time_out" else f"{last.trigger} by {last.actor}: {last.reason}"

    def read_job(self) -> View | None:
        """Reads the job that works for it, or was the last to do so."""
        jobs = [child for child in self.app.read(children_of, self.unit) if child.unit.lifecycle == JOB]
        return max(jobs, key=lambda child: child.unit.id, default=None)


def encode_result(name: str, value: Any) -> str:
    """The JSON text of a result that is given for a step.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    try:
        refuse_numbers_without_value(value)
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InterlockError(f"replace: the result of '{name}' is no JSON: {error}") from None


def define_agent(
    app: "App", handler: Callable[..., Any], name: str, budget: RunBudget | None, terms: dict[str, Any],
    rules: dict[str, Any],
) -> Agent:  # fmt: skip
    """Makes an agent of a handler.

    Raises:
        InterlockError: wrong rules; then the app has no task of that name.
    """
    task = app.define(handler, name, rules)
    try:
        return Agent(task, check_budget(budget), terms)
    except InterlockError:
        del app.tasks[name]
        raise


def read_environment(terms: dict[str, Any]) -> tuple[str, ...]:
    """Fills in what a program leaves out and an environment variable says. Returns the names of these fields."""
    names = [
        name
        for name in (*TEXTS, *COUNTS, "validation")
        if terms[name] is None and os.environ.get(f"{ENVIRONMENT}{name.upper()}")
    ]
    for name in names:
        text = os.environ[f"{ENVIRONMENT}{name.upper()}"]
        if name in COUNTS and not text.isdecimal():
            raise InterlockError(f"{ENVIRONMENT}{name.upper()} = {text!r} is not allowed; allowed is a whole number")
        terms[name] = int(text) if name in COUNTS else text
    return tuple(names)


def make_contract(task: Task[Any, Any], terms: Mapping[str, Any]) -> Contract:
    """Makes the contract of an agent.

    Raises:
        InterlockError: terms that could never hold.
    """
    for name in TEXTS:
        if not isinstance(terms[name] or "", str):
            raise InterlockError(f"{name} = {terms[name]!r} is not allowed; allowed is text")
    for name in COUNTS:
        if isinstance(terms[name], bool) or not isinstance(terms[name], int | None):
            raise InterlockError(f"{name} = {terms[name]!r} is not allowed; allowed is 0 to 1000")
    if not isinstance(terms["settings"] or {}, Mapping):
        raise InterlockError(f'settings = {terms["settings"]!r} is not allowed; allowed is one such as {{"top_p": 1}}')
    checks = terms["checks"]
    encoded = None if checks is None else encode_checks([make_check(each) for each in parse_list("checks", checks)])
    plain = msgspec.json.decode(encode_contract({"settings": terms["settings"] or {}, "checks": encoded}))
    texts: dict[str, Any] = {name: terms[name] or "" for name in TEXTS}
    contract = Contract(
        agent=task.name, settings=plain["settings"], corrections=terms["corrections"],
        optimizations=terms["optimizations"], validation=OFF if terms["validation"] is None else terms["validation"],
        tools=tuple(sorted(map(describe_tool, parse_list("tools", terms["tools"])), key=lambda tool: tool.name)),
        checks=None if checks is None else tuple(plain["checks"]["jobs"]),
        lifecycle=digest_lifecycles(task.app.lifecycles, (RUN, JOB)), **texts,
    )  # fmt: skip
    check_contract(contract)
    return contract


def check_counts(contract: Contract) -> None:
    """Raises InterlockError for a cap of a phase that could never hold."""
    for name in COUNTS:
        if (cap := getattr(contract, name)) is not None:
            check_range(name, cap, 0, CAP_MAX)


def offer_contracts(app: "App", capabilities: Iterable[str]) -> tuple[str, ...]:
    """The capabilities of a worker, with the contracts of the agents that it knows now."""
    agents = [task.agent for task in app.tasks.values() if task.agent is not None]
    return (*capabilities, *(f"{CAPABILITY}{agent.digest}" for agent in agents))
