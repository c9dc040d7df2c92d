"""A run of a workflow as whoever submitted it sees it: its steps, what they came to, and what it waits for."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.async_pairs import Asked, TwoWays
from interlock.client.exceptions import Failed
from interlock.client.jobs import Job
from interlock.core.effective_policy import policy_of
from interlock.kernel.commands import Replay, Standing, Vote
from interlock.kernel.lifecycle import Category
from interlock.store.queries.views import Glimpse, View, children_of, last_event, view

if TYPE_CHECKING:
    from interlock.client.app import App

MILLION = 1_000_000
ENGINE = "engine"  # ends those that are left


class Run(Job):
    """A run. It goes on existing whatever becomes of this object; `app.run(id)` finds it again."""

    def __init__(self, app: "App", unit: int, *, created: bool = False, lifecycle: str = "") -> None:
        super().__init__(app, unit, created=created, lifecycle=lifecycle)
        self.approve, self.reject = TwoWays(self.approved), TwoWays(self.rejected)
        self.rerun = TwoWays(self.done_again)

    @property
    def status(self) -> str:
        """Where it stands, in one word."""
        return self.state

    @property
    def steps(self) -> dict[str, str]:
        """The state of each step, by name, in the order of the template."""
        return {name_of(one): one.unit.state for one in self.children()}

    @property
    def outputs(self) -> dict[str, Any]:
        """What the steps that have succeeded came to, by name; of a rerun, those too that it goes on with."""
        runs = (*policy_of(self.app.read(view, self.unit).body).earlier, self.unit)
        found: dict[str, Any] = {}
        for run in runs:
            for one in children_of_run(self.app, run):
                if one.unit.outcome == Category.SUCCESS:
                    found[name_of(one)] = None if one.body.result is None else msgspec.json.decode(one.body.result)
        return found

    @property
    def waiting_on(self) -> list[str]:
        """The steps that wait for a person now."""
        return [name_of(one) for one in self.children() if one.unit.category == Category.GATE]

    @property
    def cost(self) -> float:
        """What it has cost so far, attempts that failed included."""
        return self.app.read(view, self.unit).unit.cost / MILLION

    def children(self) -> list[View]:
        return children_of_run(self.app, self.unit)

    def came_to(self, seen: Glimpse) -> Any:
        """What `wait` answers: the outputs of its steps. Raises Failed."""
        if seen.outcome != Category.SUCCESS:
            raise Failed(self.id, seen.state, self.why_not())
        return self.outputs

    def why_not(self) -> str:
        """Which step ended the run, and what it said."""
        for one in self.children():
            last = self.app.read(last_event, one.unit.id)
            if one.unit.outcome not in (None, Category.SUCCESS) and last and last.actor != ENGINE:
                return f"step '{name_of(one)}' is {one.unit.state}: {one.body.error or last.reason}"
        return ""

    def approved(
        self, *, by: str, comment: str = "", step: str | None = None, roles: Iterable[str] = ()
    ) -> Asked[Standing]:
        """A vote for the approval that waits; `applied` is false if none does, or `by` has voted before."""
        return self.app, self.vote(by, comment, step, roles, approve=True), lambda standing: standing

    def rejected(
        self, *, by: str, comment: str = "", step: str | None = None, roles: Iterable[str] = ()
    ) -> Asked[Standing]:
        """A vote against it: the run is cancelled, or fails where the approval says so."""
        return self.app, self.vote(by, comment, step, roles, approve=False), lambda standing: standing

    def vote(self, by: str, comment: str, step: str | None, roles: Iterable[str], *, approve: bool) -> Vote:
        return Vote(
            tenant=self.app.tenant, unit=self.unit, voter=by, actor=by, reason=comment, step=step, roles=tuple(roles),
            approve=approve,
        )  # fmt: skip

    def done_again(self, *, from_: str | None = None, by: str = "local", reason: str = "") -> "Asked[Run]":
        """A new run of the steps from one of them on; what came before it is taken over."""
        command = Replay(tenant=self.app.tenant, unit=self.unit, step=from_, actor=by, reason=reason)
        return self.app, command, lambda made: Run(self.app, made.unit, created=True, lifecycle=made.lifecycle)


def children_of_run(app: "App", run: int) -> list[View]:
    """The steps of a run, without what undoes them."""
    return [one for one in app.read(children_of, run) if policy_of(one.body).undoes is None]


def name_of(step: View) -> str:
    return policy_of(step.body).step or step.body.task
