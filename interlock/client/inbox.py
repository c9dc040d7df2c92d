"""The inbox: one list of everything that waits for a person, whatever kind of unit it is."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.async_pairs import Asked, TwoWays
from interlock.core.effective_policy import policy_of
from interlock.kernel.approvals import PEOPLE, PEOPLE_AND_CHECKS, ballot, may_vote, waiting
from interlock.kernel.approvals import asked as asked_of
from interlock.kernel.commands import LOCAL, Decide, Policy, Standing, Vote
from interlock.kernel.errors import NotWanted
from interlock.kernel.ids import format_id, parse_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.store.connection import Connection
from interlock.store.queries.trees import Tree, births_of, notes_in, resting, tree_of
from interlock.store.queries.views import View, views_of

if TYPE_CHECKING:
    from interlock.client.app import App

PAGE = 200  # units read together
ME = LOCAL
Roles = str | Iterable[str]


class Word(msgspec.Struct, frozen=True):
    """What one person has said."""

    voter: str
    approve: bool
    roles: tuple[str, ...]
    comment: str
    at: int  # microseconds UTC
    vouched_by: str = ""  # the key that spoke for this person


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits for a person: which unit, what is asked of whom, since when and until when."""

    app: Any = None  # that is asked when somebody answers it here
    unit: int
    id: str
    task: str
    lifecycle: str
    state: str
    run: str | None  # the unit that it is part of
    run_task: str | None
    words: tuple[str, ...]  # what may be said: approve, reject, plan …
    approvers: tuple[str, ...]  # names or roles whose word counts; none: everybody's
    quorum: int
    votes: tuple[Word, ...]
    submitter: str  # who made the run, or the unit itself
    not_submitter: bool  # whoever that is may not approve it
    since: int  # microseconds UTC
    expires_at: int | None
    input: Any

    def __repr__(self) -> str:
        return f"<{self.id} {self.task}: {' or '.join(self.words)}>"

    @property
    def given(self) -> int:
        """How many have approved so far."""
        return sum(vote.approve for vote in self.votes)

    @property
    def approve(self) -> TwoWays[..., Standing]:
        """`approve(comment=, by=, role=)`: it has one approval more, and with enough of them it is approved."""
        return TwoWays(partial(self.vote, True))

    @property
    def reject(self) -> TwoWays[..., Standing]:
        """`reject(comment=, by=, role=)`: it is rejected."""
        return TwoWays(partial(self.vote, False))

    @property
    def decide(self) -> TwoWays[..., Standing]:
        """`decide(word, comment=, by=)`: one of its `words` is said, where one person's word is enough."""
        return TwoWays(self.order)

    def vote(self, approve: bool, *, comment: str = "", by: str = ME, role: Roles = ()) -> Asked[Standing]:
        order = Vote(
            unit=self.unit, voter=by, roles=several(role), approve=approve, actor=by, reason=comment,
            tenant=self.app.tenant,
        )  # fmt: skip
        return self.app, order, lambda standing: standing

    def order(self, word: str, *, comment: str = "", by: str = ME) -> Asked[Standing]:
        order = Decide(unit=self.unit, trigger=word, actor=by, reason=comment, tenant=self.app.tenant)
        return self.app, order, lambda standing: standing


class Inbox:
    """`app.inbox()` is what waits; `app.inbox.approve(run)` answers what waits in a run, or at a step."""

    def __init__(self, app: "App") -> None:
        self.app = app

    def __call__(
        self,
        *,
        by: str | None = None,
        role: Roles = (),
        checks: bool = False,
        limit: int = 50,
        after: int | str | None = None,
    ) -> list[Item]:
        """What waits for a person, the oldest first, from `after` on, the last one seen.

        With `by` only what that person may still answer, and with `role` what one of these roles may. With `checks`
        also what waits for the verdict of a check.
        """
        last = 0 if after is None else parse_id(after) if isinstance(after, str) else after
        found = self.app.read(inbox_page, self.app.lifecycles, by, several(role), checks, limit, last)
        return [msgspec.structs.replace(one, app=self.app) for one in found]

    def approve(self, one: int | str, *, comment: str = "", by: str = ME, role: Roles = ()) -> Standing:
        """What waits there for an approval has one more. Raises NotWanted if nothing does, and nothing is changed."""
        return self.find(one, "approve", by).approve(comment=comment, by=by, role=role)

    def reject(self, one: int | str, *, comment: str = "", by: str = ME, role: Roles = ()) -> Standing:
        """What waits there for an approval is rejected. Raises NotWanted if nothing does, and nothing is changed."""
        return self.find(one, "reject", by).reject(comment=comment, by=by, role=role)

    def find(self, one: int | str, word: str, by: str | None = None) -> Item:
        """What waits for this word: the unit itself, or the one below it that does. Raises NotWanted."""
        unit = parse_id(one) if isinstance(one, str) else one
        found = self.app.read(inbox_item, self.app.lifecycles, unit, word, by)
        return msgspec.structs.replace(found, app=self.app)


def inbox_page(
    connection: Connection,
    tenant: int,
    lifecycles: Mapping[str, Lifecycle],
    by: str | None,
    roles: Sequence[str],
    checks: bool,
    limit: int,
    after: int,
) -> list[Item]:
    """One page of those that are meant, however many others lie between."""
    owners = PEOPLE_AND_CHECKS if checks else PEOPLE
    states, found = waiting(lifecycles, owners), list[Item]()
    size = PAGE if by is not None or roles else limit
    while len(found) < limit:
        page = resting(connection, tenant, states, size, after)
        found += [one for one in items(connection, tenant, lifecycles, page, checks) if meant_for(one, by, roles)]
        if len(page) < size:
            break
        after = page[-1].unit.id
    return found[:limit]


def items(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], units: Sequence[View], checks: bool
) -> list[Item]:
    """What each of these units asks, with what was said so far."""
    owners = PEOPLE_AND_CHECKS if checks else PEOPLE
    votes = notes_in(connection, tenant, [one.unit.id for one in units], "vote")
    above = views_of(connection, tenant, [one.unit.parent for one in units if one.unit.parent is not None])
    born = births_of(connection, tenant, [one.unit.parent or one.unit.id for one in units])
    told = []
    for one in units:
        words = tuple(
            Word(note.name, said.approve, said.roles, said.comment, note.at, said.vouched_by)
            for note in votes[one.unit.id]
            for said in [ballot(note.payload)]
        )
        lifecycle = lifecycles[one.unit.lifecycle]
        run = above.get(one.unit.parent or 0)
        submitter = born.get(one.unit.parent or one.unit.id, "")
        told.append(item(one, run, submitter, asked_of(lifecycle, one.unit.state, owners), words))
    return told


def inbox_item(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], unit: int, word: str, by: str | None
) -> Item:
    """What waits for this word at a unit or below it. Raises NotWanted."""
    tree = tree_of(connection, tenant, unit)
    known = [one for _, one in tree.units if one.unit.lifecycle in lifecycles]
    wait = [one for one in known if word in said_of(lifecycles, one)]
    if wait and wait[0].unit.id == unit:
        wait = wait[:1]
    if len(wait) > 1:
        raise NotWanted(f"{len(wait)} units there wait for it; name one: {names(wait)}")
    if not wait and tree.top in known and voted(connection, tenant, unit, by):
        wait = [tree.top]  # the engine knows what was said, and says so
    if not wait:
        raise NotWanted(nothing(tree, word, [(one, said) for one in known if (said := said_of(lifecycles, one))]))
    found = items(connection, tenant, lifecycles, wait, checks=True)[0]
    if any(vote.voter == by and vote.approve == (word == "reject") for vote in found.votes):
        raise NotWanted(f"{by} has voted otherwise already, and a vote stands")
    return found


def several(role: Roles) -> tuple[str, ...]:
    return tuple(filter(None, [role] if isinstance(role, str) else role))


def said_of(lifecycles: Mapping[str, Lifecycle], one: View) -> tuple[str, ...]:
    """What may be said to a unit."""
    return asked_of(lifecycles[one.unit.lifecycle], one.unit.state, PEOPLE_AND_CHECKS)


def voted(connection: Connection, tenant: int, unit: int, by: str | None) -> bool:
    return any(note.name == by for note in notes_in(connection, tenant, [unit], "vote")[unit])


def nothing(tree: Tree, word: str, others: Sequence[tuple[View, tuple[str, ...]]]) -> str:
    """That nobody waits for a word there, and what is waited for instead."""
    text = f"nothing there waits for '{word}'; {name_of(tree.top)} is {tree.top.unit.state}"
    for one, words in others[:5]:
        text += f"; {name_of(one)} ({one.body.task}) waits for {' or '.join(words)}"
    return text + ("; only the upper part of this large tree was looked at: name the step" if tree.cut else "")


def item(one: View, run: View | None, submitter: str, words: tuple[str, ...], votes: tuple[Word, ...]) -> Item:
    own: Policy = policy_of(one.body)
    return Item(
        unit=one.unit.id, id=name_of(one), task=one.body.task, lifecycle=one.unit.lifecycle,
        state=one.unit.state, submitter=submitter,
        run=name_of(run) if run else None, run_task=run.body.task if run else None, words=words,
        approvers=own.approvers, quorum=own.quorum or 1, votes=votes, not_submitter=own.not_submitter,
        since=one.unit.changed_at, expires_at=one.unit.deadline_at, input=msgspec.json.decode(one.body.input),
    )  # fmt: skip


def meant_for(one: Item, by: str | None, roles: Sequence[str]) -> bool:
    """Whether somebody's word is still wanted; everybody's, if nobody is named."""
    if by is None and not roles:
        return True
    if one.not_submitter and by == one.submitter:
        return False
    return may_vote(one.approvers, by, roles) and all(vote.voter != by for vote in one.votes)


def name_of(one: View) -> str:
    return format_id(one.unit.lifecycle, one.unit.id)


def names(units: Sequence[View]) -> str:
    return ", ".join(f"{name_of(one)} ({one.body.task})" for one in units[:5]) + (" …" if len(units) > 5 else "")
