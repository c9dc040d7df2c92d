"""What work says of its place in a workflow, and what it gets from the run that it is a part of."""

from collections.abc import Mapping

import msgspec

from interlock.core import validation
from interlock.core.effective_policy import policy_of
from interlock.kernel import when
from interlock.kernel.commands import Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle, RollUp
from interlock.kernel.rows import Unit
from interlock.kernel.workflow_graph import step_name
from interlock.plugins.workflows.templates import pinned, with_terms_of
from interlock.store.unit_of_work import UnitOfWork


def check_step(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """What work says of itself as a step or as a run. Raises InterlockError."""
    for name in ("step", "undo", "template"):
        if getattr(work, name) is not None:
            validation.named(name, getattr(work, name))
    if work.template_version is not None:
        validation.between("template_version", work.template_version, 1)
    if work.when is not None:
        when.parsed(work.when)
    if work.template is not None and lifecycles[work.lifecycle].options.roll_up is not RollUp.ALL:
        raise InterlockError(f"a {work.lifecycle} is no run of a template; a workflow_run is")


def prepare_step(tx: UnitOfWork, work: Work, parent: Unit | None) -> Work:
    """Work as it is made: with the version of its template, the terms of its run and its name in it."""
    work = pinned(tx, work)
    if parent is None:
        return work
    work = with_terms_of(tx.lifecycles, policy_of(tx.body(parent)), work)
    return with_step_name(tx.lifecycle(parent), work)


def with_step_name(run: Lifecycle, work: Work) -> Work:
    """A part of a run of steps, with its name there: by that name later steps get its output."""
    if work.step is not None or run.options.roll_up is not RollUp.ALL:
        return work
    return msgspec.structs.replace(work, step=step_name(work))
