"""Which reactions of plugins serve a kind of transition, cached per kind."""

from interlock.store.hooks import MoveKind
from interlock.store.unit_of_work import UnitOfWork


class KindsOfPlugins:
    """By kind: the places, in the list of the plugins' reactions, of those that serve it."""

    def __init__(self) -> None:
        self.places: dict[MoveKind, tuple[int, ...]] = {}


def find_serving(tx: UnitOfWork, kind: MoveKind) -> tuple[int, ...]:
    """The places of the plugins' reactions that serve a kind of transition."""
    known = tx.cache.state(KindsOfPlugins).places
    if kind not in known:
        known[kind] = tuple(place for place, each in enumerate(tx.hooks.reactions) if each.serves(kind))
    return known[kind]


def is_left_plain(tx: UnitOfWork, kind: MoveKind) -> bool:
    """Whether nothing follows from it that a plain unit made a transition of this kind."""
    return all(tx.hooks.reactions[place].skips_plain for place in find_serving(tx, kind))
