"""The inbox: everything that waits for a person, of any lifecycle."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from interlock.client.async_pairs import Call, verb
from interlock.core.effective_policy import policy_of
from interlock.kernel.approvals import PEOPLE, PEOPLE_AND_CHECKS, ballot, may_vote, triggers_for, waiting
from interlock.kernel.commands import LOCAL, Decide, Policy, Standing, Vote
from interlock.kernel.errors import NotWanted
from interlock.kernel.ids import format_id, parse_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.timing import present_deadline
from interlock.store.connection import Connection
from interlock.store.queries.trees import Tree, find_resting, read_births, read_notes_in, read_tree
from interlock.store.queries.views import View, views_of

if TYPE_CHECKING:
    from interlock.client.app import App

PAGE = 200  # units read together
ME = LOCAL
Roles = str | Iterable[str]


class InboxVote(msgspec.Struct, frozen=True):
    """The vote of one person."""

    voter: str
    approve: bool
    roles: tuple[str, ...]
    comment: str
    at: int  # microseconds UTC
    vouched_by: str = ""  # the key that voted for this person


class InboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits for a person: what it is, what may be decided by whom, since when and until when."""

    app: Any = None  # that sends the decision
    unit: int
    id: str
    task: str
    lifecycle: str
    state: str
    run: str | None  # that it is part of
    run_task: str | None
    words: tuple[str, ...]  # what may be decided: approve, reject, plan …
    approvers: tuple[str, ...]  # names or roles whose vote counts; none: everybody's
    quorum: int
    votes: tuple[InboxVote, ...]
    submitter: str  # of the run, or of the job itself
    not_submitter: bool  # the submitter may not approve it
    since: int  # microseconds UTC
    expires_at: int | None
    input: Any

    def __repr__(self) -> str:
        return f"<{self.id} {self.task}: {' or '.join(self.words)}>"

    @property
    def given(self) -> int:
        """How many have approved so far."""
        return sum(vote.approve for vote in self.votes)

    @verb
    def approve(self, *, comment: str = "", by: str = ME, role: Roles = (), arguments: Any = UNSET) -> Call[Standing]:
        """Votes for it; with enough of such votes it is approved. With `arguments`, these are, instead of its input."""
        vote = self.make_vote(by, comment, role, approve=True)
        if arguments is not UNSET:
            vote = msgspec.structs.replace(vote, arguments=msgspec.json.encode(arguments).decode())
        return Call(self.app, vote)

    @verb
    def reject(self, *, comment: str = "", by: str = ME, role: Roles = ()) -> Call[Standing]:
        """Votes against it: it is rejected."""
        return Call(self.app, self.make_vote(by, comment, role, approve=False))

    @verb
    def decide(self, word: str, *, comment: str = "", by: str = ME, data: Any = None) -> Call[Standing]:
        """Decides it with one of its `words`, where one person is enough; some words take data."""
        command = Decide(
            unit=self.unit, trigger=word, actor=by, reason=comment, tenant=self.app.tenant,
            data=msgspec.json.encode(data).decode(),
        )  # fmt: skip
        return Call(self.app, command)

    def make_vote(self, by: str, comment: str, role: Roles, *, approve: bool) -> Vote:
        return Vote(
            unit=self.unit, voter=by, roles=to_tuple(role), approve=approve, actor=by, reason=comment,
            tenant=self.app.tenant,
        )  # fmt: skip


class Inbox:
    """`app.inbox()` lists what waits; `app.inbox.approve(run)` decides what waits in a run, or at a step."""

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
    ) -> list[InboxItem]:
        """Lists what waits for a person, the oldest first, behind `after`, the last item of the page before.

        With `by` only what that person may still decide, and with `role` what one of these roles may. With `checks`
        also what waits for the verdict of a check.
        """
        last = 0 if after is None else parse_id(after) if isinstance(after, str) else after
        items = self.app.read(read_inbox_page, self.app.lifecycles, by, to_tuple(role), checks, limit, last)
        return [msgspec.structs.replace(item, app=self.app) for item in items]

    def approve(
        self, unit: int | str, *, comment: str = "", by: str = ME, role: Roles = (), arguments: Any = UNSET
    ) -> Standing:
        """Votes for the approval that waits there.

        Raises:
            NotWanted: none does; then nothing is changed.
        """
        return self.find(unit, "approve", by).approve(comment=comment, by=by, role=role, arguments=arguments)

    def reject(self, unit: int | str, *, comment: str = "", by: str = ME, role: Roles = ()) -> Standing:
        """Votes against the approval that waits there.

        Raises:
            NotWanted: none does; then nothing is changed.
        """
        return self.find(unit, "reject", by).reject(comment=comment, by=by, role=role)

    def find(self, unit: int | str, word: str, by: str | None = None) -> InboxItem:
        """Finds what waits for this decision: the job or step itself, or the one below it.

        Raises:
            NotWanted: nothing there waits for it, or several things do.
        """
        number = parse_id(unit) if isinstance(unit, str) else unit
        item = self.app.read(find_inbox_item, self.app.lifecycles, number, word, by)
        return msgspec.structs.replace(item, app=self.app)


# The views behind it. Their parameters are the fields of the requests over HTTP.


def read_inbox_page(
    connection: Connection,
    tenant: int,
    lifecycles: Mapping[str, Lifecycle],
    by: str | None,
    roles: Sequence[str],
    checks: bool,
    limit: int,
    after: int,
) -> list[InboxItem]:
    """Reads one page of what this person or these roles may decide, however many others lie between."""
    owners = PEOPLE_AND_CHECKS if checks else PEOPLE
    states, items = waiting(lifecycles, owners), list[InboxItem]()
    size = PAGE if by is not None or roles else limit
    while len(items) < limit:
        page = find_resting(connection, tenant, states, size, after)
        items += [item for item in read_items(connection, tenant, lifecycles, page, checks) if is_for(item, by, roles)]
        if len(page) < size:
            break
        after = page[-1].unit.id
    return items[:limit]


def read_items(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], views: Sequence[View], checks: bool
) -> list[InboxItem]:
    """Reads what each of these waits for, with the votes so far."""
    owners = PEOPLE_AND_CHECKS if checks else PEOPLE
    notes = read_notes_in(connection, tenant, [view.unit.id for view in views], "vote")
    parents = views_of(connection, tenant, [view.unit.parent for view in views if view.unit.parent is not None])
    submitters = read_births(connection, tenant, [view.unit.parent or view.unit.id for view in views])
    items = []
    for view in views:
        votes = tuple(
            InboxVote(note.name, vote.approve, vote.roles, vote.comment, note.at, vote.vouched_by)
            for note in notes[view.unit.id]
            for vote in [ballot(note.payload)]
        )
        words = triggers_for(lifecycles[view.unit.lifecycle], view.unit.state, owners)
        submitter = submitters.get(view.unit.parent or view.unit.id, "")
        items.append(make_item(view, parents.get(view.unit.parent or 0), submitter, words, votes))
    return items


def find_inbox_item(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], unit: int, word: str, by: str | None
) -> InboxItem:
    """Finds what waits for this decision, the unit itself or the one below it.

    Raises:
        NotWanted: nothing there waits for it, or several things do.
    """
    tree = read_tree(connection, tenant, unit)
    known = [view for _, view in tree.units if view.unit.lifecycle in lifecycles]
    wait = [view for view in known if word in list_words(lifecycles, view)]
    if wait and wait[0].unit.id == unit:
        wait = wait[:1]
    if len(wait) > 1:
        raise NotWanted(f"{len(wait)} jobs or steps there wait for it; name one: {list_names(wait)}")
    if not wait and tree.top in known and has_voted(connection, tenant, unit, by):
        wait = [tree.top]  # the engine knows the vote, and says so
    if not wait:
        others = [(view, words) for view in known if (words := list_words(lifecycles, view))]
        raise NotWanted(describe_no_wait(tree, word, others))
    item = read_items(connection, tenant, lifecycles, wait, checks=True)[0]
    if any(vote.voter == by and vote.approve == (word == "reject") for vote in item.votes):
        raise NotWanted(f"{by} has already voted differently, and a vote cannot be changed")
    return item


def to_tuple(role: Roles) -> tuple[str, ...]:
    """Returns one role or several as a tuple."""
    return tuple(filter(None, [role] if isinstance(role, str) else role))


def list_words(lifecycles: Mapping[str, Lifecycle], view: View) -> tuple[str, ...]:
    """Lists what may be decided about a unit."""
    return triggers_for(lifecycles[view.unit.lifecycle], view.unit.state, PEOPLE_AND_CHECKS)


def has_voted(connection: Connection, tenant: int, unit: int, by: str | None) -> bool:
    """Whether somebody has voted on a unit."""
    return any(note.name == by for note in read_notes_in(connection, tenant, [unit], "vote")[unit])


def describe_no_wait(tree: Tree, word: str, others: Sequence[tuple[View, tuple[str, ...]]]) -> str:
    """Says that nothing there waits for a decision, and what is waited for instead."""
    text = f"nothing there waits for '{word}'; {format_view_id(tree.top)} is {tree.top.unit.state}"
    for view, words in others[:5]:
        text += f"; {format_view_id(view)} ({view.body.task}) waits for {' or '.join(words)}"
    return text + ("; only the upper part of this large tree was looked at: name the step" if tree.cut else "")


def make_item(
    view: View, run: View | None, submitter: str, words: tuple[str, ...], votes: tuple[InboxVote, ...]
) -> InboxItem:
    """Makes an item of the inbox."""
    policy: Policy = policy_of(view.body)
    return InboxItem(
        unit=view.unit.id, id=format_view_id(view), task=view.body.task, lifecycle=view.unit.lifecycle,
        state=view.unit.state, submitter=submitter,
        run=format_view_id(run) if run else None, run_task=run.body.task if run else None, words=words,
        approvers=policy.approvers, quorum=policy.quorum or 1, votes=votes, not_submitter=policy.not_submitter,
        since=view.unit.changed_at, expires_at=present_deadline(view.unit.deadline_at),
        input=msgspec.json.decode(view.body.input),
    )  # fmt: skip


def is_for(item: InboxItem, by: str | None, roles: Sequence[str]) -> bool:
    """Whether a person or a role may still decide it; everybody may, if nobody is named."""
    if by is None and not roles:
        return True
    if item.not_submitter and by == item.submitter:
        return False
    return may_vote(item.approvers, by, roles) and all(vote.voter != by for vote in item.votes)


def format_view_id(view: View) -> str:
    """Returns the id that users see."""
    return format_id(view.unit.lifecycle, view.unit.id)


def list_names(views: Sequence[View]) -> str:
    """Names the first few of these units."""
    names = ", ".join(f"{format_view_id(view)} ({view.body.task})" for view in views[:5])
    return names + (" …" if len(views) > 5 else "")
