"""Who may decide on an approval, and how many votes it takes. Pure."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from interlock.kernel.lifecycle import Category, Lifecycle, Owner

OWN_VERBS = ("cancel", "bury", "drain", "skip")  # do more than move, so they are commands of their own
VERDICTS = ("approve", "reject")  # of an approval
PEOPLE = (Owner.PERSON,)
PEOPLE_AND_CHECKS = (Owner.PERSON, Owner.VALIDATOR)
RESTS = (Category.GATE, Category.WAITING)  # whoever is in another category is worked on, or has ended


class Ballot(msgspec.Struct, frozen=True):
    """What a vote says, as its note keeps it."""

    approve: bool
    comment: str = ""
    roles: tuple[str, ...] = ()
    vouched_by: str = ""  # the key that spoke for the voter


def ballot(payload: str) -> Ballot:
    """The vote that a note holds; a bare true or false is one without a word."""
    vote = msgspec.json.decode(payload, type=bool | Ballot)
    return Ballot(vote) if isinstance(vote, bool) else vote


def triggers_for(lifecycle: Lifecycle, state: str, owners: Sequence[Owner] = PEOPLE) -> tuple[str, ...]:
    """The words that move a resting unit on, and that only these can say; none if it does not wait for them."""
    if lifecycle.category(state) not in RESTS:
        return ()
    words = (trigger for trigger in lifecycle.triggers(state) if trigger not in OWN_VERBS)
    return tuple(trigger for trigger in words if lifecycle.move(state, trigger).owner in owners)


def waiting(lifecycles: Mapping[str, Lifecycle], owners: Sequence[Owner] = PEOPLE) -> list[tuple[str, str]]:
    """Every lifecycle with each state of it in which a unit waits for one of these."""
    return [
        (lifecycle.name, state)
        for lifecycle in lifecycles.values()
        for state in lifecycle.states
        if triggers_for(lifecycle, state, owners)
    ]


def may_vote(approvers: Sequence[str], voter: str | None, roles: Iterable[str]) -> bool:
    """Whether somebody is meant by a unit's approvers: by name or by a role; nobody named is everybody."""
    return not approvers or bool({voter, *roles} & {*approvers})
