"""Agents: `@app.agent` makes a handler whose runs are durable; `AgentRun` is such a run as its submitter sees it.

A run (document 000) is worked on by one job at a time. What the job records is there after a lost worker, and after
`run.resume(by=…, reason=…)`, which lets a failed or cancelled run go on with a new job.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.agent_records import TranscriptEntryResponse, describe_entry, read_all_entries
from interlock.client.async_pairs import Call, verb
from interlock.client.blobs import unpack
from interlock.client.budgets import RunBudget, check_budget, describe_caps, list_meters
from interlock.client.exceptions import Failed
from interlock.client.runs import Run
from interlock.client.tasks import Task
from interlock.core.effective_policy import option_of
from interlock.kernel.budgets import Cap, present_amount
from interlock.kernel.commands import LOCAL, Decide, Fork, MeterStatus, Standing, Submit, Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.lifecycle import Category
from interlock.plugins.agents.governance import RunDecision, read_decision
from interlock.plugins.agents.options import JOB, NAME, RUN, AgentOptions, check_agent
from interlock.plugins.agents.queries import read_agent_steps, read_meters_of_run
from interlock.store.queries.views import UnitSummary, View, children_of, view

if TYPE_CHECKING:
    from interlock.client.app import App

OPTIONS = ("key", "on_duplicate", "priority", "labels", "delay", "at", "correlation", "trace", "budget")  # of a submit
OF_RUN = ("key", "on_duplicate", "labels", "correlation", "trace", "priority")  # fields of the job that the run has
WORKER = "agent"  # the name of the first job in its run: under a key it is found again


class Agent:
    """A handler whose runs are agent runs. Called like the function that it is, it runs here and now."""

    def __init__(self, task: Task[Any, Any], own: AgentOptions) -> None:
        """Raises InterlockError for rules that could never hold."""
        self.task, self.own, self.app, self.name = task, own, task.app, task.name
        self.__name__, self.__doc__ = task.name, task.__doc__
        try:
            check_agent(task.app.lifecycles, self.make_run(task.plain_work))
        except InterlockError as wrong:
            raise InterlockError(f"agent '{task.name}': {wrong}") from None

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
        if options.get("on_duplicate") == "replace":
            raise InterlockError("on_duplicate = 'replace' is not allowed for an agent; allowed are return and reject")
        budget = check_budget(options.pop("budget", None))
        (job,) = self.task.make_submit([(args, kwargs)], options).work
        others = {"key": None, "on_duplicate": "return", "lifecycle": JOB, "parent": RUN, "step": WORKER}
        work = (self.make_run(job, budget), msgspec.structs.replace(job, **others))
        return Call(self.app, Submit(tenant=self.app.tenant, work=work), self.make_handle)

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
    def resume(self, *, by: str, reason: str, budget: RunBudget | Mapping[str, Any] | None = None) -> Call[Standing]:
        """Lets a run that failed or was cancelled go on, with a new job that has everything that was recorded.

        `budget` are other caps of it, as in `{"usd": 10}` or `interlock.budget(usd=10, soft=8)`.

        Raises:
            Refused: it has not failed, and was not cancelled.
            InterlockError: the name or the reason is empty, or a cap is below what is used.
        """
        terms = "null" if budget is None else msgspec.json.encode({"budget": describe_caps(budget)}).decode()
        command = Decide(
            tenant=self.app.tenant, unit=self.unit, trigger="resume", actor=by, reason=reason, data=terms
        )  # fmt: skip
        return Call(self.app, command)

    @verb
    def fork(
        self, *, at: str, replace: Mapping[str, Any] | None = None, by: str = LOCAL, reason: str = ""
    ) -> "Call[AgentRun]":
        """Makes a new run that goes on from a recorded step, with all that was recorded before it.

        The step itself is done again, unless `replace` has a result for it; it may have results of earlier steps too.

        Raises:
            Unknown: no such step is recorded.
            InterlockError: a result is no JSON, or that of a later step.
        """
        texts = {name: encode_result(name, value) for name, value in (replace or {}).items()}
        command = Fork(tenant=self.app.tenant, unit=self.unit, at=at, replace=texts, actor=by, reason=reason)
        return Call(self.app, command, lambda made: AgentRun(self.app, made.unit, created=True, lifecycle=RUN))

    def decode_result(self, ended: UnitSummary) -> Any:
        """Returns what its handler returned.

        Raises:
            Failed: it ended without success.
        """
        job = self.read_job()
        if ended.outcome != Category.SUCCESS:
            raise Failed(self.id, ended.state, (job.body.error if job else None) or "")
        result = job.body.result if job else None
        return None if result is None else msgspec.json.decode(unpack(self.app, result))

    def read_job(self) -> View | None:
        """Reads the job that works for it, or was the last to do so."""
        jobs = [child for child in self.app.read(children_of, self.unit) if child.unit.lifecycle == JOB]
        return max(jobs, key=lambda child: child.unit.id, default=None)


def encode_result(name: str, value: Any) -> str:
    """The JSON text of a result that is given for a step. Raises InterlockError."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InterlockError(f"replace: the result of '{name}' is no JSON: {error}") from None


def define_agent(
    app: "App", handler: Callable[..., Any], name: str, corrections: int | None, optimizations: int | None,
    budget: RunBudget | None, rules: dict[str, Any],
) -> Agent:  # fmt: skip
    """Makes an agent of a handler. Raises InterlockError for wrong rules; then the app has no task of that name."""
    task = app.define(handler, name, rules)
    try:
        caps = check_budget(budget)
        return Agent(task, AgentOptions(corrections, optimizations, dict(caps.caps) if caps else None))
    except InterlockError:
        del app.tasks[name]
        raise
