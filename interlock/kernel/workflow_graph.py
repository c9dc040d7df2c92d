"""Work that names other work of the same request: in which order it is made, and what is done again with a step."""

from collections.abc import Iterable, Sequence

import msgspec

from interlock.kernel.commands import Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.graph import arrange, cycle, reaching
from interlock.kernel.rows import Row

STEPS_MAX = 10_000
SHOWN_MAX = 100  # names in a message
STEP, APPROVAL = "step", "approval"
APPROVAL_STEP = "APPROVAL"  # document 001's name of the step that no worker executes


class Template(Row):
    """The steps of a workflow, as one version of it has them."""

    table = "template"
    tenant: int
    name: str
    version: int
    steps: str
    digest: str
    defined_at: int


def refuse_odd(template: str, steps: Sequence[Work]) -> None:
    """Every step has a name of its own and needs steps of the same template, in no circle. Raises InterlockError."""
    if not 0 < len(steps) <= STEPS_MAX:
        raise InterlockError(f"template '{template}' has {len(steps)} steps; allowed are 1 to {STEPS_MAX}")
    if not all(step.ref for step in steps):
        raise InterlockError(f"template '{template}': a step has no name; give it one as ref")
    try:
        order_of(steps)
    except InterlockError as wrong:
        raise type(wrong)(f"template '{template}': {wrong}") from None


def as_gate(work: Work) -> Work:
    """A step of document 001 that is called APPROVAL, by its task or its ref, as an approval; other work as it is."""
    if work.lifecycle != STEP or APPROVAL_STEP not in (work.task, work.ref):
        return work
    return msgspec.structs.replace(work, lifecycle=APPROVAL)


def step_name(work: Work) -> str:
    """What a step is called in its run: its ref, or its task where nobody gave it one."""
    return work.task if not work.ref or "\0" in work.ref else work.ref


def order_of(works: Sequence[Work]) -> list[int]:
    """The places of these works, each behind its parent and behind those that it needs. Raises InterlockError."""
    refs: dict[str, int] = {}
    for place, work in enumerate(works):
        if work.ref and work.ref in refs:
            raise InterlockError(f"two steps are called '{work.ref}'; give one of them another name")
        refs[work.ref] = place
    refs.pop("", None)
    before = [[place_of(refs, name) for name in names_in(work)] for work in works]
    order = arrange(before)
    if len(order) < len(works):
        pairs = [(works[place].ref, works[need].ref) for place, some in enumerate(before) for need in some]
        raise InterlockError(f"a circle of needs: {shown(cycle(pairs), ' needs ')}; none of them could ever begin")
    return order


def names_in(work: Work) -> Iterable[str]:
    """The refs by which a work names others."""
    return (*work.needs, work.parent) if isinstance(work.parent, str) else work.needs


def place_of(refs: dict[str, int], name: str) -> int:
    if not isinstance(name, str):
        raise InterlockError(f"needs = {name!r} is not allowed: it takes refs of the same request; ids go to after")
    if name not in refs:
        raise Unknown(
            f"nothing in this request has the ref '{name}'; there are {shown(list(refs), ', ') or 'none'}. "
            "A job that is there already is named by its id, in after"
        )
    return refs[name]


def shown(names: Sequence[str], between: str) -> str:
    some = [name for name in names if not name.startswith("\0")][:SHOWN_MAX]
    return between.join(some) + (f"{between}… ({len(names):,} in all)" if len(names) > SHOWN_MAX else "")


def above(steps: Iterable[Work]) -> dict[str, set[str]]:
    """By step: all steps that must succeed before it. Each of these steps is behind those that it needs."""
    order: dict[str, set[str]] = {}
    for step in steps:
        order[step.ref] = {name for need in step.needs for name in (need, *order[need])}
    return order


def kept(template: str, steps: Sequence[Work], first: str | None, done: Iterable[str]) -> set[str]:
    """The steps that a run from `first` on does not do again: all that have succeeded, but for it and what needs it.

    `steps` are in order: each is behind those that it needs.
    """
    if first is None:
        return set()
    won, names = set(done), [step.ref for step in steps]
    if first not in names:
        raise Unknown(f"template '{template}' has no step '{first}'; it has {shown(names, ', ')}")
    before = reaching([first], [(need, step.ref) for step in steps for need in step.needs]) - {first}
    if missing := [name for name in names if name in before - won]:
        raise InterlockError(
            f"a run from '{first}' on goes on with what came before, and '{missing[0]}' has not succeeded; begin there"
        )
    left: set[str] = set()
    for step in steps:
        if step.ref != first and step.ref in won and left.issuperset(step.needs):
            left.add(step.ref)
    return left
