"""Hooks: the lists of functions through which plugins take part in a transaction."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.kernel.commands import (
    Command,
    Decide,
    LeaseRef,
    Outcome,
    Record,
    Release,
    Requeue,
    Rerun,
    Standing,
    Submit,
    Submitted,
    Work,
)
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Unit, WorkerRow

if TYPE_CHECKING:
    from interlock.store.unit_of_work import UnitOfWork


class Moved(NamedTuple):
    """A unit that was written: as it is now, and as the database had it before; None if it is born."""

    unit: Unit
    was: Unit | None

    @property
    def kind(self) -> "MoveKind":
        """By what reactions choose it."""
        unit, was = self
        return MoveKind(
            unit.lifecycle, unit.category, unit.outcome, was is None,
            was is None or was.state != unit.state, unit.outcome is not None and not (was and was.outcome),
            unit.parent is not None, unit.total > 0, bool(unit.decides),
        )  # fmt: skip


class MoveKind(NamedTuple):
    """What thousands of moves have in common, and all that a reaction chooses by: it is asked once for each kind."""

    lifecycle: str
    category: str  # of the state that the unit is in now
    outcome: str | None
    is_birth: bool
    has_entered: bool  # the unit has just come into its state
    has_ended: bool  # the unit has just got its outcome
    is_child: bool
    is_parent: bool
    decides: bool  # the unit counts for its parent's outcome


class Reaction(NamedTuple):
    """What follows from transitions. It is run with those of the kinds that it serves, and not at all without any."""

    name: str
    serves: Callable[[MoveKind], bool]
    run: Callable[["UnitOfWork", list[Moved]], None]
    skips_plain: bool = False  # whether nothing follows from the moves of plain units, though their kinds are served


class GrantKind(NamedTuple):
    """What thousands of grants have in common, and all by which fields are added to them."""

    is_repeated: bool  # the unit was granted before, or does another one of its run again
    is_child: bool
    decides: bool  # the unit counts for its parent's outcome
    is_named: bool  # it has a name in its parent
    takes_outputs: bool  # its holder is handed the results of what it needs
    has_options: bool


class GrantFields(NamedTuple):
    """Fields of the grants that a worker gets. They are read for the units of the kinds that it serves."""

    serves: Callable[[GrantKind], bool]
    read: Callable[["UnitOfWork", list[Unit]], Mapping[int, Mapping[str, Any]]]  # by unit


class RecordKind(NamedTuple):
    """What thousands of records have in common, and all by which plugins are asked about one."""

    kind: str
    is_child: bool  # the unit has a parent
    asks: bool  # it says what was asked for
    has_usage: bool  # it says what was used
    is_large: bool  # its value is beside the database


class OnRecord(NamedTuple):
    """What a plugin does with something that the holder of a unit records, of the kinds that it serves.

    `run` returns whether the plugin has kept it. It raises NotWanted if it is not accepted: nothing has changed then.
    """

    serves: Callable[[RecordKind], bool]
    run: Callable[["UnitOfWork", Unit, Record], bool]


# Each of these is called within the transaction, in the order of the plugins.

# Called whenever a unit's columns are derived, with the unit, whether it could be claimed now, and whether it is held.
# Returns whether it has what it needs; one that has not is parked on the key that it waits for.
Gate = Callable[["UnitOfWork", Unit, bool, bool], bool]
# Called before anything is made of work. Raises InterlockError if nothing may be made of it. Of work that says the same
# but for what is each one's own, such as its needs, `checks` may be asked once; `checks_each` is asked for each, if it
# has options.
Check = Callable[[Mapping[str, Lifecycle], Work], None]
# Returns works with what their tasks say of all their work and they leave out; called before anything else is done with
# them. Raises InterlockError if nothing may be made of them.
CompleteWork = Callable[["UnitOfWork", Sequence[Work]], Sequence[Work]]
# Returns work as it is made: with what its parent says of all its parts, or with the version of its template.
PrepareWork = Callable[["UnitOfWork", Work, Unit | None], Work]
# Called with work of which a unit is made. Returns whether the unit's availability, its grant and its success are no
# business of this plugin, so that they may go the fast path.
IsPlain = Callable[[Work], bool]
# Called with work of which a unit is about to be made.
BeforeBirth = Callable[["UnitOfWork", Work], None]
# Called when everything of a submit was made that has keys, needs or places below parents, with its answers. Raises
# InterlockError if nothing of it may be made.
AfterSubmit = Callable[["UnitOfWork", Submit, Sequence[Submitted]], None]
# Called before a unit is made ready. Returns whether it is not to be made ready after all.
BeforeReady = Callable[["UnitOfWork", Unit], bool]
# Called before a unit is granted to a worker; nothing has changed yet. Raises InterlockError if it must not be granted:
# then the unit is withheld, and its reason is shown by `why`.
GrantGuard = Callable[["UnitOfWork", Unit], None]
# Called by a claim with the queues that it asks for. Returns those of which something may be granted now.
ClaimQueues = Callable[["UnitOfWork", Sequence[str]], Sequence[str]]
# Called by a claim with the function that finds at most so many units for it. Returns one that finds only units that
# may be granted now; it parks those that it comes across and that may not.
ClaimFilter = Callable[["UnitOfWork", "Find"], "Find"]
Find = Callable[[int], list[Unit]]
# Called by a claim with its worker and units that it has found. Returns those of them that it leaves to other workers;
# they stay as they are, or have been ended.
LeftToOthers = Callable[["UnitOfWork", WorkerRow, Sequence[Unit]], Collection[int]]
# Called with a unit that is being granted to a worker, and the fence that it will have.
BeforeGrant = Callable[["UnitOfWork", Unit, int], None]
# Called when a failure, a lost lease or a timeout is about to end a unit without success, with the trigger and what is
# recorded of it, to which it may add. Returns the trigger by which the unit ends instead, or the same.
BeforeFailure = Callable[["UnitOfWork", Unit, str, dict[str, Any]], str]
# Called when a unit is about to be cancelled, with the reason and with what is recorded of it, to which it may add.
BeforeCancel = Callable[["UnitOfWork", Unit, str, dict[str, Any]], None]
# Called before the end that a holder reports of a unit that is not plain is accepted. Raises NotWanted if it is not:
# nothing has changed then, the holder is told why, and it still holds the unit.
EndGuard = Callable[["UnitOfWork", Unit, Outcome], None]
# Called when a holder gives a unit back, with the time at which it is due. Returns a payload and columns, or None.
OnRelease = Callable[["UnitOfWork", Unit, Release, int | None], tuple[dict[str, Any], dict[str, Any]] | None]
# Called to do an ended unit again. Returns the new one, or None if the unit is no business of this plugin.
OnRerun = Callable[["UnitOfWork", Unit, Requeue | Rerun], Submitted | None]
# Called before the tasks of an ended unit are made again below a new one, some of them with what they came to: the old
# unit, the new one, and the tasks that are to be done again. Returns further ones that must be.
BeforeRerun = Callable[["UnitOfWork", Unit, Unit, Collection[int]], Collection[int]]
# Called to carry out a verdict. Returns where the unit stands, or None if the engine is to do it.
OnDecide = Callable[["UnitOfWork", Decide], Standing | None]
# Called when all checks of a unit in a gate have ended: with those that failed, each with its error, and with what is
# said of the verdict. Returns whether the plugin has moved the unit, which is valid or invalid otherwise.
OnVerdict = Callable[["UnitOfWork", Unit, Sequence[tuple[str, str]], str], bool]
# Called after a verdict was carried out.
AfterDecide = Callable[["UnitOfWork", Unit, Decide], None]
# Called before something is recorded that a holder sends. Raises InterlockError if it may not be.
BeforeRecord = Callable[[Record], None]
# Called when a holder enters a phase of its run, with the run and the trigger; the move is listed, and not made yet.
# Raises NotWanted if it may not be made: nothing has changed then.
PhaseGuard = Callable[["UnitOfWork", Unit, str], None]
# Called with a parent that is about to make the move that its children have led to, and the trigger.
BeforeRollUp = Callable[["UnitOfWork", Unit, str], None]
# Called with a unit whose deadline has passed, or is to be noted. Returns for how many microseconds its clock has stood
# by now, if it stands, and None if it goes. One that stands is set aside until somebody moves its deadline.
Clock = Callable[["UnitOfWork", Unit], int | None]
# Called with a message of a holder that was refused because its lease is over: the command, the lease that it names.
OnStale = Callable[["UnitOfWork", Command[Any], LeaseRef], None]
# Called with the ids of units that are written to an archive. Yields the plugin's own rows of them, each with the name
# of its table and its columns, always in one order. A row of `blob` names bytes that are copied beside the archive.
ArchiveRows = Callable[["UnitOfWork", Sequence[int]], Iterator[tuple[str, Mapping[str, Any]]]]
# Called when an archived tree has come back, with the ids of its units and the rows that `archive_rows` gave of them,
# each with the name of its table as "table". Raises InterlockError if something of it cannot come back.
RestoreRows = Callable[["UnitOfWork", Collection[int], Sequence[Mapping[str, Any]]], None]
# Called when units are deleted because they were archived, with their ids.
OnForget = Callable[["UnitOfWork", Sequence[int]], None]
# Does what is due beside the units' own clocks, at most so much at once. Returns how much it did.
Timer = Callable[["UnitOfWork", int], int]


class Hooks(NamedTuple):
    """What the plugins of an engine add to it."""

    options: tuple[tuple[str, type], ...] = ()  # by plugin: the type of its member of `Work.options`
    gates: tuple[Gate, ...] = ()
    checks: tuple[Check, ...] = ()
    checks_each: tuple[Check, ...] = ()
    complete_work: tuple[CompleteWork, ...] = ()
    complete_options: tuple[CompleteWork, ...] = ()  # the same, where some of the works have options
    prepare_work: tuple[PrepareWork, ...] = ()
    before_birth: tuple[BeforeBirth, ...] = ()
    is_plain: tuple[IsPlain, ...] = ()
    after_submit: tuple[AfterSubmit, ...] = ()
    before_ready: tuple[BeforeReady, ...] = ()
    grant_guards: tuple[GrantGuard, ...] = ()
    claim_queues: tuple[ClaimQueues, ...] = ()
    claim_filters: tuple[ClaimFilter, ...] = ()
    left_to_others: tuple[LeftToOthers, ...] = ()
    before_grant: tuple[BeforeGrant, ...] = ()
    end_guards: tuple[EndGuard, ...] = ()
    before_failure: tuple[BeforeFailure, ...] = ()
    before_cancel: tuple[BeforeCancel, ...] = ()
    grant_fields: tuple[GrantFields, ...] = ()
    on_release: tuple[OnRelease, ...] = ()
    on_rerun: tuple[OnRerun, ...] = ()
    before_rerun: tuple[BeforeRerun, ...] = ()
    on_decide: tuple[OnDecide, ...] = ()
    on_verdict: tuple[OnVerdict, ...] = ()
    after_decide: tuple[AfterDecide, ...] = ()
    before_record: tuple[BeforeRecord, ...] = ()
    on_record: tuple[OnRecord, ...] = ()
    phase_guards: tuple[PhaseGuard, ...] = ()
    before_roll_up: tuple[BeforeRollUp, ...] = ()
    clocks: tuple[Clock, ...] = ()
    on_stale: tuple[OnStale, ...] = ()
    archive_rows: tuple[ArchiveRows, ...] = ()
    restore_rows: tuple[RestoreRows, ...] = ()
    on_forget: tuple[OnForget, ...] = ()
    reactions: tuple[Reaction, ...] = ()
    claim_timers: tuple[Timer, ...] = ()  # called by every claim and every tick
    tick_timers: tuple[Timer, ...] = ()  # called by ticks alone
    # Those of `claim_timers`, `claim_queues` and `claim_filters` that go by rows alone. If they had nothing to do for a
    # claim, they are not asked again before somebody writes more than moves of plain units, or an instant has come that
    # `clocks_of_rows` name: each is a SELECT of the next one at which time has something to do for `:tenant`.
    by_rows: tuple[Timer | ClaimQueues | ClaimFilter, ...] = ()
    clocks_of_rows: tuple[str, ...] = ()


def is_never_plain(work: Work) -> bool:
    """Is the answer of a plugin that has business with every unit."""
    return False


def complete_is_plain(hooks: Hooks) -> Hooks:
    """A plugin that looks at grants or ends, and does not say of which work, has business with every unit."""
    looks = hooks.gates or hooks.before_grant or hooks.grant_guards or hooks.end_guards
    return hooks._replace(is_plain=(is_never_plain,)) if looks and not hooks.is_plain else hooks


def merge(hooks: Iterable[Hooks]) -> Hooks:
    """The hooks of several plugins, in their order."""
    every = list(map(complete_is_plain, hooks))
    fields: dict[str, Any] = {name: sum((getattr(some, name) for some in every), ()) for name in Hooks._fields}
    return Hooks(**fields)


NONE = Hooks()
