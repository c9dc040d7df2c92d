"""Rules that a lifecycle must satisfy before anything runs on it: one function per rule."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from interlock.kernel.graph import cycle, reachable, reaching
from interlock.kernel.guards import BY_CHILDREN, BY_ENGINE, BY_HOLDER, GUARDS, LOSSES, list_guards
from interlock.kernel.lifecycle import Category, Lifecycle, Owner, State
from interlock.kernel.lifecycle_options import CancelMode, RollUp


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a lifecycle: where, which rule, and what would be right."""

    place: str
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text} [{self.rule}]"


def faults(lifecycle: Lifecycle) -> list[Fault]:
    """Everything wrong with a lifecycle; empty is what the loader demands."""
    unknown = list(unknown_states(lifecycle))
    # The other rules follow the moves, so they can only be asked of states that exist.
    return unknown or [fault for rule in RULES for fault in rule(lifecycle)]


def at(state: str | None) -> str:
    """The place of a state, as faults name it."""
    return "birth" if state is None else f"state '{state}'"


def list_unfinished(lifecycle: Lifecycle) -> Iterator[State]:
    """Returns the states in which work has not ended."""
    return (state for state in lifecycle.states.values() if not state.settled)


def unknown_states(lifecycle: Lifecycle) -> Iterator[Fault]:
    """Moves lead from states and to states that there are."""
    known = ", ".join(lifecycle.states)
    for move in lifecycle.moves.values():
        if move.source is not None and move.source not in lifecycle.states:
            text = f"moves are listed for a state that [states] does not have; it has {known}"
            yield Fault(at(move.source), "unknown-state", text)
        for target in move.path:
            if target not in lifecycle.states:
                text = f"'{move.trigger}' leads to '{target}', which [states] does not have; it has {known}"
                yield Fault(at(move.source), "unknown-state", text)


def unreachable(lifecycle: Lifecycle) -> Iterator[Fault]:
    """Every state can be reached from birth."""
    reached = reachable([None], [(hop.source, hop.target) for hop in lifecycle.hops])
    for state in lifecycle.states:
        if state not in reached:
            yield Fault(at(state), "unreachable", "no path of moves leads here from birth")


def no_end(lifecycle: Lifecycle) -> Iterator[Fault]:
    """From every state an end can be reached."""
    ends = [state.name for state in lifecycle.states.values() if state.settled]
    ending = reaching(ends, [(hop.source, hop.target) for hop in lifecycle.hops])
    for state in lifecycle.states:
        if state not in ending:
            text = "no path of moves leads from here to a settled state (success, failure, cancelled, dead, closed)"
            yield Fault(at(state), "no-end", text)


def lost_lease(lifecycle: Lifecycle) -> Iterator[Fault]:
    """A holder may vanish in every state that it holds, so each needs a way out without it."""
    worked = {Category.HELD, Category.ACTIVE} if lifecycle.leased else {Category.HELD}
    for state in lifecycle.states.values():
        if state.category in worked:
            if not any(lifecycle.allows(state.name, trigger) for trigger in LOSSES):
                text = f"it is {state.category}, but no move answers a lost lease; list 'lost' or 'reclaim'"
                yield Fault(at(state.name), "lost-lease", text)
            elif lifecycle.leased and not lifecycle.allows(state.name, "exhaust"):
                text = "a lease can be lost here, but no 'exhaust' says what happens when no attempt is left"
                yield Fault(at(state.name), "lost-lease", text)


def claimable(lifecycle: Lifecycle) -> Iterator[Fault]:
    """What is ready for a worker can be claimed."""
    for state in lifecycle.states.values():
        if state.category is Category.READY and not lifecycle.allows(state.name, "claim"):
            yield Fault(at(state.name), "ready-claim", "it is ready for a worker, but lists no 'claim'")


def says_cancel(lifecycle: Lifecycle) -> Iterator[Fault]:
    """Every unfinished state lists a cancel, or says what becomes of one, and why."""
    for state in list_unfinished(lifecycle):
        listed = lifecycle.allows(state.name, "cancel")
        if listed and state.cancel:
            text = f"it lists a 'cancel' move and also says cancel = '{state.cancel}'; keep one of them"
            yield Fault(at(state.name), "cancel", text)
        elif not listed and state.cancel not in ("deferred", "refused"):
            rule = f"says cancel = '{state.cancel}'" if state.cancel else "says nothing about cancel"
            text = f"it is unfinished and {rule}; list a 'cancel' move, or say cancel = 'deferred' or 'refused'"
            yield Fault(at(state.name), "cancel", text)
        elif state.cancel == "refused" and not state.cancel_why:
            yield Fault(at(state.name), "cancel", "it refuses cancel, but cancel_why does not say why")


def says_deadline(lifecycle: Lifecycle) -> Iterator[Fault]:
    """Every unfinished state says something about a deadline, unless it is ready for a worker."""
    for state in list_unfinished(lifecycle):
        if not state.deadline and state.category is Category.READY:
            continue
        if not state.deadline:
            text = (
                "it is unfinished and says nothing about a deadline; say 'parent', 'none' or the trigger of its clock"
            )
            yield Fault(at(state.name), "deadline", text)
        elif state.deadline == "none":
            if not state.deadline_why:
                yield Fault(at(state.name), "deadline", "it has no deadline, but deadline_why does not say why")
        elif state.deadline != "parent" and not lifecycle.allows(state.name, state.deadline):
            listed = ", ".join(lifecycle.triggers(state.name))
            text = f"its deadline fires '{state.deadline}', which is not listed here; listed are {listed}"
            yield Fault(at(state.name), "deadline", text)


def one_answer(lifecycle: Lifecycle) -> Iterator[Fault]:
    """A trigger leads from a state to one target, also in the middle of another state's path."""
    answer: dict[tuple[str | None, str], str] = {}
    for hop in lifecycle.hops:
        known = answer.setdefault((hop.source, hop.trigger), hop.target)
        if known != hop.target:
            text = f"'{hop.trigger}' leads both to '{known}' and to '{hop.target}'"
            yield Fault(at(hop.source), "one-answer", text)


def circle(lifecycle: Lifecycle) -> Iterator[Fault]:
    """In a monotonic lifecycle only the next attempt may see a state again."""
    within = [(hop.source, hop.target) for hop in lifecycle.hops if hop.source is not None and not hop.opens_attempt]
    if not lifecycle.options.monotonic:
        if not lifecycle.options.monotonic_why:
            yield Fault("options", "cycle", "monotonic = false, but monotonic_why does not say why")
    elif states := cycle(within):
        text = f"the cycle {' -> '.join(map(str, states))} opens no attempt; mark one of its moves opens_attempt"
        yield Fault(at(states[0]), "cycle", text)


def settled_exit(lifecycle: Lifecycle) -> Iterator[Fault]:
    """A result changes only by opening another attempt; closing a unit keeps it."""
    for hop in lifecycle.hops:
        if hop.source is None or not lifecycle.settled(hop.source) or hop.opens_attempt:
            continue
        if lifecycle.category(hop.target) is not Category.CLOSED:
            text = f"it is settled, so '{hop.trigger}' to '{hop.target}' must open an attempt (opens_attempt = true)"
            yield Fault(at(hop.source), "settled-exit", text)


def says_why(lifecycle: Lifecycle) -> Iterator[Fault]:
    """Every extension of a document says why it is needed."""
    for move in lifecycle.moves.values():
        if move.extension and not move.why:
            yield Fault(at(move.source), "extension", f"'{move.trigger}' is an extension, but does not say why")


def terms(lifecycle: Lifecycle) -> Iterator[Fault]:
    """A lease outlives two beats, and its default lies within its own bounds."""
    lease = lifecycle.options.lease
    if lifecycle.leased and lease is None:
        yield Fault("lease", "lease-terms", "workers claim its units, so it needs a [lease] table with ttl and beat")
    if lease is None:
        return
    if not lease.ttl_min_us <= lease.ttl_us <= lease.ttl_max_us:
        yield Fault("lease", "lease-terms", "ttl lies outside ttl_min and ttl_max")
    if not lease.beat_min_us <= lease.beat_us <= lease.beat_max_us:
        yield Fault("lease", "lease-terms", "beat lies outside beat_min and beat_max")
    if lease.ttl_us < 2 * lease.beat_us:
        yield Fault("lease", "lease-terms", "ttl is shorter than two beats, so one late beat would lose the lease")
    if lease.missed_beats < 0:
        yield Fault("lease", "lease-terms", "missed_beats is below 0")
    if lease.ack_us is not None and lease.ack_us > lease.ttl_us:
        yield Fault("lease", "lease-terms", "ack is longer than ttl, so it could never be late")
    if lease.silent_max_us is not None and lease.silent_max_us < lease.ttl_us:
        yield Fault("lease", "lease-terms", "silent_max is shorter than ttl")


def owners(lifecycle: Lifecycle) -> Iterator[Fault]:
    """What only time, policy or children can bring about is the engine's; what only a holder knows is the holder's."""
    for move in lifecycle.moves.values():
        wanted = move.owner
        if lifecycle.leased and move.trigger in BY_ENGINE | BY_HOLDER:
            wanted = Owner.ENGINE if move.trigger in BY_ENGINE else Owner.HOLDER
        if lifecycle.options.roll_up is not RollUp.NONE and move.trigger in BY_CHILDREN:
            wanted = Owner.ENGINE
        if move.owner is not wanted:
            text = f"'{move.trigger}' is for the {wanted} to fire, not for a {move.owner}; say owner = '{wanted}'"
            yield Fault(at(move.source), "owner", text)


def misspelt(lifecycle: Lifecycle) -> Iterator[Fault]:
    """A trigger that nearly has the name of one that the engine fires would never be fired."""
    known = (BY_ENGINE | BY_HOLDER | {"cancel"} if lifecycle.leased else set()) | (
        BY_CHILDREN if lifecycle.options.roll_up is not RollUp.NONE else set()
    )
    for move in lifecycle.moves.values():
        if move.trigger not in known and (near := get_close_matches(move.trigger, sorted(known), 1, 0.8)):
            text = f"'{move.trigger}' is no trigger that the engine fires; did you mean '{near[0]}'? If not, rename it"
            yield Fault(at(move.source), "misspelt", text)


def failure(lifecycle: Lifecycle) -> Iterator[Fault]:
    """A holder that may complete a unit may also have to say that it failed for good."""
    for state in lifecycle.states if lifecycle.leased else ():
        if lifecycle.allows(state, "complete") and not (
            lifecycle.allows(state, "fail") or lifecycle.allows(state, "bury")
        ):
            yield Fault(at(state), "failure", "it lists 'complete', but neither 'fail' nor 'bury' for a failure")


def cancels(lifecycle: Lifecycle) -> Iterator[Fault]:
    """A cancel ends in a cancel, as far as the lifecycle has a word for it; it is no way to a success."""
    for move in lifecycle.moves.values():
        ends = {Category.SUCCESS, Category.DEAD, Category.CLOSED}
        if move.trigger in ("cancel", "stopped", "overdue") and lifecycle.category(move.path[-1]) in ends:
            text = f"'{move.trigger}' leads to '{move.path[-1]}', which is {lifecycle.category(move.path[-1])}"
            yield Fault(at(move.source), "cancel", f"{text}; a cancel ends cancelled, or failed")


def tries_again(lifecycle: Lifecycle) -> Iterator[Fault]:
    """What is lost or given back waits for the next worker, or is over; nobody works on it meanwhile."""
    worked = {Category.HELD, Category.ACTIVE, Category.GATE, Category.SUCCESS}
    for move in lifecycle.moves.values() if lifecycle.leased else ():
        if move.trigger in ("lost", "retry", "release", "snooze") and lifecycle.category(move.path[-1]) in worked:
            text = f"'{move.trigger}' leads to '{move.path[-1]}', which is {lifecycle.category(move.path[-1])}"
            text += "; it must wait for the next worker, or be over"
            yield Fault(at(move.source), "next-attempt", text)


def flags(lifecycle: Lifecycle) -> Iterator[Fault]:
    """Where a holder is only told of a cancel, it must be able to answer."""
    for state in lifecycle.states.values():
        flagged = lifecycle.options.cancel_mode is CancelMode.FLAGGED and state.category is Category.ACTIVE
        if flagged and lifecycle.allows(state.name, "cancel") and not lifecycle.allows(state.name, "stopped"):
            text = "a soft cancel tells its holder here, but no 'stopped' hears the answer"
            yield Fault(at(state.name), "cancel", text)


def two_phases(lifecycle: Lifecycle) -> Iterator[Fault]:
    """A cancel in two phases has a state in which the unit closes."""
    closing = any(state.category is Category.CLOSING for state in lifecycle.states.values())
    if lifecycle.options.cancel_mode is CancelMode.TWO_PHASE and not closing:
        text = "cancel_mode = 'two_phase' needs a state of category closing, between the wish and its end"
        yield Fault("options", "two-phase", text)


def follows(lifecycle: Lifecycle) -> Iterator[Fault]:
    """Faults of lifecycles that follow another one."""
    if (lifecycle.options.roll_up is RollUp.FOLLOW) != bool(lifecycle.options.follows):
        yield Fault("options", "follow", "roll_up = 'follow' and follows = 'LIFECYCLE' go together")


def guarded(lifecycle: Lifecycle) -> Iterator[Fault]:
    """A guard that nothing asks would promise what nobody keeps."""
    for move in lifecycle.moves.values():
        guards = list_guards(lifecycle, move)
        for name in move.guards:
            if name in guards:
                continue
            wrong = "which nothing asks there" if name in GUARDS else "which is no guard of the engine"
            allowed = f"asked for '{move.trigger}' here are {', '.join(guards)}"
            if not guards:
                allowed = f"no guard is asked for '{move.trigger}' here"
            text = f"'{move.trigger}' names the guard '{name}', {wrong}; {allowed}; words that only explain are a note"
            yield Fault(at(move.source), "guard", text)


RULES: tuple[Callable[[Lifecycle], Iterator[Fault]], ...] = (
    unreachable,
    no_end,
    lost_lease,
    claimable,
    says_cancel,
    says_deadline,
    one_answer,
    circle,
    settled_exit,
    says_why,
    terms,
    owners,
    misspelt,
    failure,
    cancels,
    tries_again,
    flags,
    two_phases,
    follows,
    guarded,
)
