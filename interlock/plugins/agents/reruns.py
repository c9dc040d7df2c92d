"""An ended agent run is done again: a new run under the same terms, which remembers nothing of the old one."""

from interlock.core.effective_policy import policy_of
from interlock.core.operator_verbs import make_again_stamp
from interlock.core.places import add_place
from interlock.core.reactions.follow import make_next_attempt
from interlock.core.ready import make_ready
from interlock.kernel.commands import Requeue, Rerun, Submitted
from interlock.kernel.rows import Unit
from interlock.plugins.agents.binding import change_contract, find_contract_digest, read_stored
from interlock.plugins.agents.options import RUN
from interlock.plugins.agents.queries import find_last_job
from interlock.store.unit_of_work import UnitOfWork


def rerun_agent(tx: UnitOfWork, old: Unit, command: Requeue | Rerun) -> Submitted | None:
    """An ended agent run is done again; None if it is none, or if only a part of it is asked for."""
    is_whole = isinstance(command, Requeue) or not (command.failed or command.first is not None)
    last = find_last_job(tx, old.id) if old.lifecycle == RUN and is_whole else None
    if last is None:
        return None
    stamp = make_again_stamp(command)
    run = make_next_attempt(tx, None, stamp, old)
    job = make_next_attempt(tx, run, stamp, tx.unit(last))
    make_ready(tx, job)
    if (name := policy_of(tx.body(job)).step) is not None:
        add_place(tx, run, name, job.id)
    digest = find_contract_digest(tx, old)
    if digest != find_contract_digest(tx, run):
        change_contract(tx, run, digest, read_stored(tx, digest), stamp.actor)
    return Submitted(unit=run.id, created=True, lifecycle=RUN, state=run.state)
