"""What a step or a run does when nothing keeps it any more: it is skipped, or its steps are made."""

from interlock.core.advance import Stamp, advance
from interlock.core.effective_policy import policy_of
from interlock.core.ready import make_ready
from interlock.kernel import when
from interlock.kernel.rows import Unit
from interlock.plugins.workflows.outputs import read_known_values
from interlock.plugins.workflows.templates import expand
from interlock.store.unit_of_work import UnitOfWork

SKIPPED = Stamp("engine", "skipped")
# By these, in this order, a unit that is not wanted goes to its success: each that its table lists.
WITHOUT_WORK = ("ready", "begin", "claim", "start", "complete", "approve", "succeed")


def expand_or_skip(tx: UnitOfWork, unit: Unit) -> bool:
    """The run of a template has its steps now. A step that is not wanted has succeeded without work."""
    own = policy_of(tx.body(unit))
    if own.when is not None and not when.holds(own.when, read_known_values(tx, unit)):
        skip(tx, unit)
        return True
    if own.template is not None and not unit.total:
        make_steps_ready(tx, expand(tx, unit))
    return False


def make_steps_ready(tx: UnitOfWork, steps: list[Unit]) -> None:
    """Makes those steps ready that need nothing more."""
    for step in steps:
        if not step.unmet:
            make_ready(tx, step)


def skip(tx: UnitOfWork, unit: Unit) -> None:
    """The unit has succeeded, and nobody worked for it."""
    for trigger in WITHOUT_WORK:
        if tx.lifecycle(unit).allows(unit.state, trigger):
            advance(tx, unit, trigger, SKIPPED)
