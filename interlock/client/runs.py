"""A run of a workflow as its submitter sees it: its steps, their outputs, and what it waits for."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from interlock.client.async_pairs import Call, Steps, verb, verb_of_steps
from interlock.client.children import ChildWork, add_children, child, find_child
from interlock.client.exceptions import Failed
from interlock.client.jobs import Job
from interlock.client.steps import get_step_name, read_steps
from interlock.client.tasks import Task
from interlock.kernel.commands import Rerun, Standing, Vote
from interlock.kernel.lifecycle import Category
from interlock.store.queries.views import UnitSummary, View, last_event

ENGINE = "engine"  # ends those that are left


class Run(Job):
    """A run. It goes on existing whatever becomes of this object; `app.run(id)` finds it again."""

    @property
    def status(self) -> str:
        """The same as `state`."""
        return self.state

    @property
    def steps(self) -> dict[str, str]:
        """The state of each step, by name, in the order of the template."""
        return {get_step_name(step): step.unit.state for step in self.read_steps()}

    @verb_of_steps
    def step(self, name: str) -> Steps[Job]:
        """Finds the step, or another child, that has this name in the run, however many there are.

        Raises:
            Unknown: there is none; the text says which names there are.
        """
        return (yield from find_child(self, name))

    @verb_of_steps
    def add(
        self, /, task: "Task[Any, Any] | str", name: str | None = None, arguments: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Steps[Job]:  # fmt: skip
        """Adds a child to the run; `options` are those of `interlock.child`, such as `needs=["build"]`.

        A name that a child has already is that child: nothing is added, and `created` is false.

        Raises:
            InterlockError: an argument or an option is wrong, the run has ended, or the needs go in a circle.
        """
        (job,) = yield from add_children(self, [child(task, name, arguments, **options)])
        return job

    @verb_of_steps
    def add_many(self, children: Iterable[ChildWork]) -> Steps[list[Job]]:
        """Adds children (`interlock.child`) in any order, in pages of 1,000; adding all of them again adds what lacks.

        Raises:
            InterlockError: a child was refused, and with it its page.
        """
        return (yield from add_children(self, list(children)))

    @property
    def waiting_on(self) -> list[str]:
        """The steps that wait for a person now."""
        return [get_step_name(step) for step in self.read_steps() if step.unit.category == Category.GATE]

    def read_steps(self) -> list[View]:
        return read_steps(self.app, self.unit)

    def decode_result(self, ended: UnitSummary) -> Any:
        """Returns what `wait` returns: the outputs of its steps.

        Raises:
            Failed: it ended without success.
        """
        if ended.outcome != Category.SUCCESS:
            raise Failed(self.id, ended.state, self.describe_failure())
        return self.outputs

    def describe_failure(self) -> str:
        """Says which step ended the run, and why."""
        for step in self.read_steps():
            last = self.app.read(last_event, step.unit.id)
            if step.unit.outcome not in (None, Category.SUCCESS) and last and last.actor != ENGINE:
                return f"step '{get_step_name(step)}' is {step.unit.state}: {step.body.error or last.reason}"
        return ""

    @verb
    def approve(
        self, *, by: str, comment: str = "", step: str | None = None, roles: Iterable[str] = ()
    ) -> Call[Standing]:
        """Votes for the approval that waits; `applied` is false if none does, or `by` has voted before."""
        return Call(self.app, self.make_vote(by, comment, step, roles, approve=True))

    @verb
    def reject(
        self, *, by: str, comment: str = "", step: str | None = None, roles: Iterable[str] = ()
    ) -> Call[Standing]:
        """Votes against it: the run is cancelled, or fails where the approval says so."""
        return Call(self.app, self.make_vote(by, comment, step, roles, approve=False))

    def make_vote(self, by: str, comment: str, step: str | None, roles: Iterable[str], *, approve: bool) -> Vote:
        return Vote(
            tenant=self.app.tenant, unit=self.unit, voter=by, actor=by, reason=comment, step=step, roles=tuple(roles),
            approve=approve,
        )  # fmt: skip

    @verb
    def rerun(
        self, *, failed: bool = False, from_: str | None = None, by: str = "local", reason: str = ""
    ) -> "Call[Self]":
        """Makes a new run that does what this one did, once it has ended.

        Parameters:
            failed: what has succeeded is taken over, with its outputs, and only the rest is done again.
            from_: only this step, or task, is done again, and what comes after it.
        """
        command = Rerun(
            tenant=self.app.tenant, unit=self.unit, failed=failed, step=from_, actor=by, reason=reason
        )  # fmt: skip
        kind = type(self)
        return Call(self.app, command, lambda made: kind(self.app, made.unit, created=True, lifecycle=made.lifecycle))
