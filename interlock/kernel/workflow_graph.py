"""Order and needs of the steps of one request, and what is run again together with a step."""

from collections.abc import Callable, Collection, Iterable, Sequence

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
    """Every step has a name of its own and needs steps of the same template, in no circle.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
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


def has_ref(work: Work) -> bool:
    """Whether somebody gave work a ref; those that the server makes up have a NUL."""
    return bool(work.ref) and "\0" not in work.ref


def step_name(work: Work) -> str:
    """What a step is called in its run: its ref, or its task where nobody gave it one."""
    return work.ref if has_ref(work) else work.task


def has_all_names(work: Work) -> bool:
    """Every name that this work gives is that of other work in the same request."""
    return True


def order_of(works: Sequence[Work], is_whole: Callable[[Work], bool] = has_all_names) -> list[int]:
    """The places of these works, each behind its parent and behind those that it needs.

    Work for which `is_whole` is false may also need names that are not among these works.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    refs: dict[str, int] = {}
    for place, work in enumerate(works):
        if work.ref and work.ref in refs:
            raise InterlockError(f"two steps are called '{work.ref}'; give one of them another name")
        refs[work.ref] = place
    refs.pop("", None)
    before = [
        [place_of(refs, name) for name in names_in(work) if name in refs or type(name) is not str or is_whole(work)]
        for work in works
    ]
    order = arrange(before)
    if len(order) < len(works):
        refuse_cycle((works[place].ref, works[need].ref) for place, some in enumerate(before) for need in some)
    return order


def refuse_cycle(needs: Iterable[tuple[str, str]]) -> None:
    """Pairs of a name and the name that it needs are in no circle.

    Raises:
        InterlockError: the text names one in order.
    """
    if names := cycle(needs):
        raise InterlockError(f"a circle of needs: {join_names(names, ' needs ')}; none of them could ever begin")


def names_in(work: Work) -> Iterable[str]:
    """The refs by which a work names others."""
    needs = (*work.needs, *work.needs_end) if work.needs_end else work.needs
    return (*needs, work.parent) if isinstance(work.parent, str) else needs


def place_of(refs: dict[str, int], name: str) -> int:
    """Returns the place of the work with this ref."""
    if not isinstance(name, str):
        raise InterlockError(f"needs = {name!r} is not allowed: it takes refs of the same request; ids go to after")
    if name not in refs:
        raise Unknown(
            f"nothing in this request has the ref '{name}'; there are {join_names(list(refs), ', ') or 'none'}. "
            "A job that is there already is named by its id, in after; by name, children of a parent that is there "
            "already need each other"
        )
    return refs[name]


def join_names(names: Sequence[str], between: str) -> str:
    """The first names as one text, and how many there are if not all of them are in it."""
    some = [name for name in names if not name.startswith("\0")][:SHOWN_MAX]
    return between.join(some) + (f"{between}… ({len(names):,} in all)" if len(names) > SHOWN_MAX else "")


def above(steps: Iterable[Work], wanted: Collection[str]) -> dict[str, set[str]]:
    """By step: those of the wanted names that must succeed before it. Each step is behind those that it needs.

    Few names are wanted of a long graph: all steps above each would be as many as their square.
    """
    order: dict[str, set[str]] = {}
    for step in steps:
        order[step.ref] = {name for need in step.needs for name in (need, *order[need]) if name in wanted}
    return order


def find_kept_steps(template: str, steps: Sequence[Work], first: str | None, done: Iterable[str]) -> set[str]:
    """The steps that a run from `first` on does not do again: all that have succeeded, but for it and what needs it.

    `steps` are in order: each is behind those that it needs.
    """
    if first is None:
        return set()
    won, names = set(done), [step.ref for step in steps]
    if first not in names:
        raise Unknown(f"template '{template}' has no step '{first}'; it has {join_names(names, ', ')}")
    before = reaching([first], [(need, step.ref) for step in steps for need in names_in(step)]) - {first}
    lacking = before - won
    if missing := [name for name in names if name in lacking]:
        raise InterlockError(
            f"a run from '{first}' on goes on with what came before, and '{missing[0]}' has not succeeded; begin there"
        )
    left: set[str] = set()
    for step in steps:
        if step.ref != first and step.ref in won and left.issuperset(names_in(step)):
            left.add(step.ref)
    return left
