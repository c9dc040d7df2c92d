"""Templates: the steps of a workflow, stored by version; a run keeps the one that it began with."""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256

import msgspec

from interlock.core import validation
from interlock.core.advance import Stamp
from interlock.core.effective_policy import policy_of
from interlock.core.operator_verbs import make_again_stamp
from interlock.core.places import Prerequisite, load_places
from interlock.core.ready import make_ready
from interlock.core.submit import complete_work, create_unit
from interlock.core.validation import check_work, encode_policy, make_policy, may_be_reclaimed, policy_values
from interlock.kernel import workflow_graph
from interlock.kernel.commands import DefineTemplate, Planned, Policy, Requeue, Rerun, Submitted, Work
from interlock.kernel.commands.submit import encode_work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Unit
from interlock.kernel.workflow_graph import Template, order_of
from interlock.plugins.workflows.outputs import read_known_values, read_outputs_of_runs
from interlock.plugins.workflows.queries import add_template, find_template
from interlock.store.unit_of_work import UnitOfWork

OF_THE_RUN = ("key", "parent", "after", "after_end", "input", "at_us", "correlation", "trace", "cause", "step")


def define_template(tx: UnitOfWork, command: DefineTemplate) -> Planned:
    """The newest version of the template has these steps; if it had them before, nothing has changed."""
    validation.check_name("name", command.name)
    workflow_graph.refuse_odd(command.name, command.steps)
    text = encode_work([check_template_step(tx, command.name, step) for step in command.steps])
    digest = sha256(text.encode()).hexdigest()
    last = find_template(tx, command.tenant, command.name)
    if last is not None and last.digest == digest:
        return Planned(name=command.name, changed=False, version=last.version)
    fresh = Template(
        tenant=command.tenant, name=command.name, version=last.version + 1 if last else 1, steps=text, digest=digest,
        defined_at=tx.now,
    )  # fmt: skip
    add_template(tx, fresh)
    return Planned(name=command.name, changed=True, version=fresh.version)


def check_template_step(tx: UnitOfWork, template: str, step: Work) -> Work:
    """A step as it is kept: one that is a workflow itself names its version, so that no template is inside itself."""
    step = workflow_graph.as_gate(step)
    plain = Work(task=step.task)
    for name in OF_THE_RUN:
        if getattr(step, name) != getattr(plain, name):
            raise InterlockError(f"template '{template}': a step has no {name}; set it on the run")
    try:
        check_work(tx.lifecycles, step, tx.hooks)
    except InterlockError as wrong:
        raise InterlockError(f"template '{template}', step '{step.ref}': {wrong}") from None
    validation.check_name("a step's name", step.ref)
    return pin_version(tx, step)


def pin_version(tx: UnitOfWork, work: Work) -> Work:
    """Work that is a run of a template names the version: the one that it says, or else the newest."""
    if work.template is None:
        return work
    return msgspec.structs.replace(
        work, template_version=get_template(tx, tx.tenant, work.template, work.template_version).version
    )


def get_template(tx: UnitOfWork, tenant: int, name: str, version: int | None) -> Template:
    """Returns a template by its name, in its newest version or in the one that is named."""
    template = find_template(tx, tenant, name, version)
    if template is None:
        which = "" if version is None else f" version {version}"
        raise Unknown(f"there is no template '{name}'{which}; a worker of the program that has it defines it")
    return template


@lru_cache(maxsize=256)
def decode_steps(text: str) -> tuple[Work, ...]:
    """The steps of a version, each behind those that it needs. A version never changes, so it is read once."""
    given = msgspec.json.decode(text, type=tuple[Work, ...])
    return tuple(given[place] for place in order_of(given))


def read_template_steps(tx: UnitOfWork, run: Unit) -> tuple[Work, ...]:
    """The steps of the template that a run began with; none if it is no run of a template."""
    own = policy_of(tx.body(run))
    if own.template is None:
        return ()
    return decode_steps(get_template(tx, run.tenant, own.template, own.template_version).steps)


def expand(tx: UnitOfWork, run: Unit, kept: set[str] | None = None) -> list[Unit]:
    """The steps of a run exist, in the order of its template, each needing those that it names; but for the kept."""
    own, body = policy_of(tx.body(run)), tx.body(run)
    given = body.input if own.step is None else msgspec.json.encode(read_known_values(tx, run)).decode()
    made: dict[str, Unit] = {}
    load_places(tx, run.id, [step.ref for step in read_template_steps(tx, run)])
    for step in read_template_steps(tx, run):
        if kept and step.ref in kept:
            continue
        work = msgspec.structs.replace(step, input=given, step=step.ref, priority=run.priority or step.priority)
        (work,) = complete_work(tx, [with_terms_of(tx.lifecycles, own, work)])
        rules = (
            encode_policy(policy_values(work))
            if not own.earlier
            else encode_pinned_policy(make_policy(work), own.earlier)
        )
        needs = [Prerequisite(made[name].id, made[name]) for name in step.needs if name in made]
        needs += [Prerequisite(made[name].id, made[name], True) for name in step.needs_end if name in made]
        made[step.ref] = create_unit(tx, work, rules, Stamp("engine"), run, needs)
    return list(made.values())


def with_terms_of(lifecycles: Mapping[str, Lifecycle], run: Policy, work: Work) -> Work:
    """A part of a run, with what the run says of all its parts and this one does not say itself."""
    if run.reclaim_after_us is None or work.reclaim_after_us is not None or not may_be_reclaimed(lifecycles, work):
        return work
    return msgspec.structs.replace(work, reclaim_after_us=run.reclaim_after_us)


def rerun_template(tx: UnitOfWork, old: Unit, command: Requeue | Rerun) -> Submitted | None:
    """An ended run of a template is done again, from a step on; None if it is no such run."""
    if policy_of(tx.body(old)).template is None:
        return None
    first = find_first(tx, old, command) if isinstance(command, Rerun) else None
    run, steps = make_rerun(tx, old, first, make_again_stamp(command))
    for step in steps:
        if not step.unmet:
            make_ready(tx, step)
    return Submitted(unit=run.id, created=True, lifecycle=run.lifecycle, state=run.state)


def find_first(tx: UnitOfWork, old: Unit, command: Rerun) -> str | None:
    """The step from which on a run is done again; None if all of it is.

    Raises:
        InterlockError: nothing failed.
    """
    if not command.failed:
        return command.first
    done = read_outputs_of_runs(tx, (*policy_of(tx.body(old)).earlier, old.id))
    left = [step.ref for step in read_template_steps(tx, old) if step.ref not in done]
    if not left:
        raise InterlockError(f"{format_id(old.lifecycle, old.id)} has no step that has not succeeded; leave failed out")
    return left[0]


def make_rerun(tx: UnitOfWork, old: Unit, first: str | None, stamp: Stamp) -> tuple[Unit, list[Unit]]:
    """A new run of the same version, which names the old one and goes on with its outputs; and its steps."""
    body = tx.body(old)
    own = policy_of(body)
    if own.step is not None:
        raise InterlockError(
            f"{format_id(old.lifecycle, old.id)} is a step of run {old.parent}; do that run again, from '{own.step}' on"
        )
    runs = (*own.earlier, old.id)
    kept = workflow_graph.find_kept_steps(
        own.template or "", read_template_steps(tx, old), first, read_outputs_of_runs(tx, runs)
    )
    work = Work(
        task=body.task, lifecycle=old.lifecycle, input=body.input, priority=old.priority, labels=body.labels,
        correlation=body.correlation, trace=body.trace,
    )  # fmt: skip
    run = create_unit(tx, work, encode_pinned_policy(own, runs if kept else ()), stamp, None, ())
    tx.body(run).retry_of = old.id
    return run, expand(tx, run, kept)


def encode_pinned_policy(own: Policy, earlier: tuple[int, ...]) -> str:
    """Encodes the policy of a step that reads outputs of earlier runs."""
    return msgspec.json.encode(msgspec.structs.replace(own, earlier=earlier)).decode()
