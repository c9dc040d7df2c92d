"""Where plugins take part in a transaction of the engine: lists of functions, each asked in the order of the list."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.kernel.commands import Decide, Outcome, Record, Release, Replay, Standing, Submitted, Work
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Unit

if TYPE_CHECKING:
    from interlock.store.unit_of_work import UnitOfWork


class Moved(NamedTuple):
    """A unit that was written: as it is now, and as the database had it before; None if it is born."""

    unit: Unit
    was: Unit | None

    @property
    def has_ended(self) -> bool:
        """Whether it has just got its outcome."""
        return self.unit.outcome is not None and not (self.was and self.was.outcome)


class Reaction(NamedTuple):
    """What follows from transitions. It is run with those that it serves, and not at all if there is none."""

    name: str
    serves: Callable[[Moved], bool]
    run: Callable[["UnitOfWork", list[Moved]], None]


# Asked whenever a unit's columns are derived: the unit, whether it could be claimed now, and whether it is held.
# Answers whether it has what it needs; one that has not is parked on the key that it waits for.
Gate = Callable[["UnitOfWork", Unit, bool, bool], bool]
# Asked of work before anything is made of it; raises InterlockError.
Check = Callable[[Mapping[str, Lifecycle], Work], None]
# Work as it is made: with what its parent says of all its parts, or with the version of its template.
Prepare = Callable[["UnitOfWork", Work, Unit | None], Work]
# Told of work of which a unit is about to be made.
Birth = Callable[["UnitOfWork", Work], None]
# Asked before a unit is made ready. Answers whether it is not to be made ready after all.
Ready = Callable[["UnitOfWork", Unit], bool]
# Asked before a unit is granted to a worker; nothing has changed yet. Raises InterlockError if it must not be granted:
# then the unit is withheld, and its reason is shown by `why`.
GrantGuard = Callable[["UnitOfWork", Unit], None]
# Asked before the end that a holder reports is accepted. Raises NotWanted if it is not: nothing has changed then, the
# holder is told why, and it still holds the unit.
EndGuard = Callable[["UnitOfWork", Unit, Outcome], None]
# Told of a unit that is about to be granted to a worker, with the fence that it will have. Raises if it must not be.
Granting = Callable[["UnitOfWork", Unit, int], None]
# What a worker is told of units that it holds, by unit: fields of its grants.
HandOver = Callable[["UnitOfWork", list[Unit]], Mapping[int, Mapping[str, Any]]]
# Asked when a holder gives a unit back, with the time at which it is due. Answers a payload and columns, or None.
Releasing = Callable[["UnitOfWork", Unit, Release, int | None], tuple[dict[str, Any], dict[str, Any]] | None]
# Asked to do an ended unit again. Answers the new one, or None if it is no business of this plugin.
Replaying = Callable[["UnitOfWork", Unit, Replay], Submitted | None]
# Asked to carry out a verdict. Answers where the unit stands, or None if the engine is to do it.
Deciding = Callable[["UnitOfWork", Decide], Standing | None]
# Told of a verdict that was carried out.
Decided = Callable[["UnitOfWork", Unit, Decide], None]
# Asked whether what a holder wants to have remembered may be; raises InterlockError.
Recording = Callable[[Record], None]
# Told of a parent that is about to make the move that its children have led to.
RolledUp = Callable[["UnitOfWork", Unit, str], None]
# What time does beside the units' own clocks: at most so much at once. Answers how much it did.
Timer = Callable[["UnitOfWork", int], int]


class Hooks(NamedTuple):
    """What the plugins of an engine add to it."""

    options: tuple[tuple[str, type], ...] = ()  # by plugin: the type of its member of `Work.options`
    gates: tuple[Gate, ...] = ()
    checks: tuple[Check, ...] = ()
    prepares: tuple[Prepare, ...] = ()
    births: tuple[Birth, ...] = ()
    readies: tuple[Ready, ...] = ()
    grant_guards: tuple[GrantGuard, ...] = ()
    grantings: tuple[Granting, ...] = ()
    end_guards: tuple[EndGuard, ...] = ()
    hand_overs: tuple[HandOver, ...] = ()
    releasings: tuple[Releasing, ...] = ()
    replayings: tuple[Replaying, ...] = ()
    decidings: tuple[Deciding, ...] = ()
    decided: tuple[Decided, ...] = ()
    recordings: tuple[Recording, ...] = ()
    roll_ups: tuple[RolledUp, ...] = ()
    reactions: tuple[Reaction, ...] = ()
    claim_timers: tuple[Timer, ...] = ()  # asked by every claim and every tick
    tick_timers: tuple[Timer, ...] = ()  # asked by ticks alone


def merge(hooks: Iterable[Hooks]) -> Hooks:
    """The hooks of several plugins, in their order."""
    every = list(hooks)
    fields: dict[str, Any] = {name: sum((getattr(some, name) for some in every), ()) for name in Hooks._fields}
    return Hooks(**fields)


NONE = Hooks()
