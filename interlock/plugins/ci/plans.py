"""A run gets its plan: the jobs, the plan itself and the move in one transaction, or the reason why there is none."""

import msgspec

from interlock.core.advance import Stamp, advance, make_stamp
from interlock.core.cancel import make_standing
from interlock.core.decide import ready_children
from interlock.core.notes import note
from interlock.core.places import refuse_missing_children
from interlock.core.reactions.roll_up import end_family
from interlock.core.submit import submit
from interlock.core.validation import check_json, check_text
from interlock.kernel import policy
from interlock.kernel.commands import Plan, Requeue, Rerun, Standing, Submit
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Unit
from interlock.plugins.ci.options import JOB, RUN
from interlock.store.queries.for_verbs import load_open_children, read_notes
from interlock.store.unit_of_work import UnitOfWork

PLAN = "plan"  # the kind of note that has the plan of a run
KINDS = (JOB, "approval")  # what a plan makes
NO_JOBS = "the plan has no jobs; a run has at least one"
REASON_MAX = 4_000  # characters


def plan_run(tx: UnitOfWork, command: Plan) -> Standing:
    """A run that waits for its plan is queued with its jobs, or has failed. The same plan again changes nothing.

    Raises:
        InterlockError: it is no CI run, or something in the plan is wrong; nothing has changed.
        Refused: it does not wait for a plan any more.
    """
    check_json("plan", command.plan)
    check_text("the reason", command.failed)
    load_open_children(tx, command.unit)  # children are locked before their parent
    run = tx.unit(command.unit)
    if run.lifecycle != RUN:
        raise InterlockError(f"{format_id(run.lifecycle, run.id)} is planned otherwise; allowed is a {RUN}")
    if wrong := next((work.lifecycle for work in command.work if work.lifecycle not in KINDS), None):
        raise InterlockError(f"a {wrong} is no part of a plan; allowed are {' and '.join(KINDS)}")
    failed = command.failed or ("" if command.work else NO_JOBS)
    lifecycle, stamp = tx.lifecycle(run), make_stamp(command)
    if not lifecycle.allows(run.state, "plan") and is_planned_so(tx, run.id, command.plan):
        return make_standing(run, applied=False)
    lifecycle.move(run.state, "plan")
    note(tx, run.id, PLAN, command.plan)
    if failed:
        advance(tx, run, "fail", Stamp(stamp.actor, failed[:REASON_MAX], stamp.cause, stamp.vouched_by))
        return make_standing(run, applied=True)
    work = tuple(msgspec.structs.replace(each, parent=run.id) for each in command.work)
    submit(tx, Submit(tenant=command.tenant, actor=command.actor, cause=command.cause, work=work))
    refuse_missing_children(tx, run)
    source = run.state
    advance(tx, run, "plan", stamp)
    ready_children(tx, run)
    if run.asked_at is not None and policy.is_cancel_resumed(lifecycle, source, run.state):
        advance(tx, run, "cancel", stamp)
        end_family(tx, run)  # its jobs are not counted yet, so the reaction would see none
    return make_standing(run, applied=True)


def is_planned_so(tx: UnitOfWork, run: int, plan: str) -> bool:
    """Whether a run got this plan before."""
    return any(kept.payload == plan for kept in read_notes(tx, [run], PLAN))


def refuse_rerun(tx: UnitOfWork, old: Unit, command: Requeue | Rerun) -> None:
    """Raises InterlockError for a run that was planned: a checkout does it again, with the files that it had."""
    if old.lifecycle == RUN and read_notes(tx, [old.id], PLAN):
        name = format_id(RUN, old.id)
        raise InterlockError(f"{name} is rerun in a checkout of its repository, by: interlock ci rerun {name}")
