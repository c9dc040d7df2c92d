"""The steps of a template as a graph: what comes before a step, and what is done again with it."""

from collections.abc import Iterable, Sequence

from interlock.kernel.commands import Work
from interlock.kernel.errors import InterlockError, Unknown

STEPS_MAX = 1_000


def refuse_odd(template: str, steps: Sequence[Work]) -> None:
    """Every step has a name of its own and needs only steps before it. Raises InterlockError."""
    if not 0 < len(steps) <= STEPS_MAX:
        raise InterlockError(f"template '{template}' has {len(steps)} steps; allowed are 1 to {STEPS_MAX}")
    before: list[str] = []
    for step in steps:
        if not step.ref:
            raise InterlockError(f"template '{template}': a step has no name; give it one as ref")
        if step.ref in before:
            raise InterlockError(f"template '{template}' has two steps '{step.ref}'; give one of them another name")
        for need in step.needs:
            if need not in before:
                raise Unknown(f"template '{template}': step '{step.ref}' needs '{need}', which is no step before it")
        before.append(step.ref)


def above(steps: Iterable[Work]) -> dict[str, set[str]]:
    """By step: all steps that must succeed before it."""
    found: dict[str, set[str]] = {}
    for step in steps:
        found[step.ref] = {name for need in step.needs for name in (str(need), *found[str(need)])}
    return found


def kept(template: str, steps: Sequence[Work], first: str | None, done: Iterable[str]) -> set[str]:
    """The steps that a run from `first` on does not do again: all that have succeeded, but for it and what needs it."""
    if first is None:
        return set()
    before, won = above(steps), set(done)
    if first not in before:
        raise Unknown(f"template '{template}' has no step '{first}'; it has {', '.join(before)}")
    if missing := [step.ref for step in steps if step.ref in before[first] - won]:
        raise InterlockError(
            f"a run from '{first}' on goes on with what came before, and '{missing[0]}' has not succeeded; begin there"
        )
    left: set[str] = set()
    for step in steps:
        if step.ref != first and step.ref in won and before[step.ref] <= left:
            left.add(step.ref)
    return left
