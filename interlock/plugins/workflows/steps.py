"""What work says of its place in a workflow, and what it gets from the run that it is a part of."""

from collections.abc import Mapping

import msgspec

from interlock.core import validation
from interlock.core.effective_policy import policy_of
from interlock.kernel import when
from interlock.kernel.commands import Work, read_options
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.rows import Unit
from interlock.kernel.workflow_graph import step_name
from interlock.plugins.workflows.templates import pin_version, with_terms_of
from interlock.store.unit_of_work import UnitOfWork


class WorkflowOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What work says of itself as a step or as a run."""

    step: str | None = None  # its name in its run
    when: str | None = None  # a condition on the outputs of earlier steps; if it is false, the step is skipped
    undo: str | None = None  # the task that undoes it if its run ends without success
    template: str | None = None  # the template whose run it is
    template_version: int | None = None  # the newest one by default


def check_step(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """Check what work says of itself as a step or as a run.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    options = read_options(work, WorkflowOptions)
    for name in ("step", "undo", "template"):
        if getattr(options, name) is not None:
            validation.check_name(name, getattr(options, name))
    if options.template_version is not None:
        validation.check_range("template_version", options.template_version, 1)
    if options.when is not None:
        when.parse_condition(options.when)
    if options.template is not None and lifecycles[work.lifecycle].options.roll_up is not RollUp.ALL:
        raise InterlockError(f"a {work.lifecycle} is no run of a template; a workflow_run is")


def prepare_step(tx: UnitOfWork, work: Work, parent: Unit | None) -> Work:
    """Work as it is made: with the version of its template, the terms of its run and its name in it."""
    work = pin_version(tx, work)
    if parent is None:
        return work
    work = with_terms_of(tx.lifecycles, policy_of(tx.body(parent)), work)
    return with_step_name(tx.lifecycle(parent), work)


def with_step_name(run: Lifecycle, work: Work) -> Work:
    """A part of a run of steps, with its name there: by that name later steps get its output."""
    if work.step is not None or run.options.roll_up is not RollUp.ALL:
        return work
    return msgspec.structs.replace(work, step=step_name(work))
