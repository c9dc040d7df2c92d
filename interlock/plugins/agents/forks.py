"""Forks: a new run of an agent goes on from a recorded step of another one.

The new run has copies of what the last job of the old one recorded before that step: what a resumed run has, as far as
it is older than the step. Results may be replaced; who did so is noted. The old run stays as it is, whatever its state.
"""

from collections.abc import Mapping, Sequence

import msgspec

from interlock.core import validation
from interlock.core.advance import make_stamp
from interlock.core.effective_policy import policy_of
from interlock.core.notes import note
from interlock.core.places import add_place
from interlock.core.reactions.follow import make_next_attempt
from interlock.core.ready import make_ready
from interlock.kernel.commands import Fork, Submitted
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Note, Unit
from interlock.plugins.agents.binding import change_contract, find_contract_digest, find_wanted_contract
from interlock.plugins.agents.decisions import OWN_SIGNALS, read_memory
from interlock.plugins.agents.options import RUN
from interlock.plugins.agents.queries import find_last_job, read_newest_contract
from interlock.store.queries.for_verbs import load_open_children, read_notes
from interlock.store.queries.recorded_steps import REQUEST, STEP
from interlock.store.unit_of_work import UnitOfWork

FORKED, REPLACED = "forked", "replaced"  # kinds of notes, of the new run
NAMES_SHOWN = 20
RESULT_MAX = 1024 * 1024  # characters of a result that is given instead of a recorded one


def fork(tx: UnitOfWork, command: Fork) -> Submitted:
    """Makes the new run.

    Raises:
        Unknown: the step is not recorded.
        InterlockError: a result is wrong.
    """
    load_open_children(tx, command.unit)  # children are locked before their parent
    run, stamp = tx.unit(command.unit), make_stamp(command)
    if run.lifecycle != RUN:
        raise InterlockError(f"{format_id(run.lifecycle, run.id)} is not an agent run; only agent runs can be forked")
    last = find_last_job(tx, run.id)
    job = None if last is None else tx.unit(last)
    memory = [] if job is None else read_memory(tx, job.id)
    step = find_step(memory, command.at)
    check_results(memory, step, command.replace)
    assert job is not None, "it has a step"
    new_run = make_next_attempt(tx, None, stamp, run)
    new_job = make_next_attempt(tx, new_run, stamp, job)
    make_ready(tx, new_job)
    if (name := policy_of(tx.body(job)).step) is not None:
        add_place(tx, new_run, name, new_job.id)
    origin = {"run": run.id, "at": command.at, "by": command.describe_actor(), "reason": command.reason}
    note(tx, new_run.id, FORKED, msgspec.json.encode(origin).decode())
    adopt_contract(tx, new_run, command)
    for kept in memory:
        if is_before(kept, step) and not (kept.kind in (STEP, REQUEST) and kept.name in command.replace):
            note(tx, new_job.id, kept.kind, kept.payload, name=kept.name)
    for sent in read_notes(tx, [run.id], "signal"):
        if is_before(sent, step) and not sent.name.startswith(OWN_SIGNALS):
            note(tx, new_run.id, sent.kind, sent.payload, name=sent.name)
    replace_results(tx, new_run, new_job, memory, command)
    return Submitted(unit=new_run.id, created=True, lifecycle=RUN, state=new_run.state)


def adopt_contract(tx: UnitOfWork, run: Unit, command: Fork) -> None:
    """A new run has the contract that was named, or else the newest of its agent, whatever the other run had."""
    if command.contract is None and read_newest_contract(tx.connection, tx.tenant, tx.body(run).task) is None:
        return
    digest, text = find_wanted_contract(tx, tx.body(run).task, command.contract)
    if digest != find_contract_digest(tx, run):
        change_contract(tx, run, digest, text, command.describe_actor())


def is_before(kept: Note, step: Note) -> bool:
    """Whether something was recorded before a step. What it asked for is recorded with it."""
    if kept.kind == REQUEST and kept.name == step.name:
        return False
    return (kept.at, kept.id) < (step.at, step.id)


def find_step(memory: Sequence[Note], name: str) -> Note:
    """The recorded step of this name.

    Raises:
        Unknown: there is none.
    """
    steps = {kept.name: kept for kept in memory if kept.kind == STEP}
    if name not in steps:
        names = list(steps)
        shown = ", ".join(f"'{known}'" for known in names[:NAMES_SHOWN]) + (" …" if len(names) > NAMES_SHOWN else "")
        raise Unknown(f"no step '{name}' is recorded; there are {shown or 'none'}")
    return steps[name]


def check_results(memory: Sequence[Note], step: Note, replace: Mapping[str, str]) -> None:
    """Raises Unknown for a step that is not recorded, and InterlockError for one that comes later, or for no JSON."""
    for name, text in replace.items():
        replaced = find_step(memory, name)
        if replaced is not step and not is_before(replaced, step):
            raise InterlockError(f"replace: the step '{name}' was recorded after '{step.name}', and is done again")
        validation.check_range(f"replace: the size of '{name}'", len(text), 0, RESULT_MAX)
        validation.check_json(f"replace: the result of '{name}'", text)


def replace_results(tx: UnitOfWork, run: Unit, job: Unit, memory: Sequence[Note], command: Fork) -> None:
    """Steps have the results that they were given, and the run tells by whom and instead of what."""
    before = {kept.name: kept.payload for kept in memory if kept.kind == STEP}
    for name, text in command.replace.items():
        note(tx, job.id, STEP, text, name=name)
        origin = {"by": command.describe_actor(), "was": msgspec.Raw(before[name].encode())}
        note(tx, run.id, REPLACED, msgspec.json.encode(origin).decode(), name=name)
