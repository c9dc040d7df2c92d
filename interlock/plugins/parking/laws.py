"""What is true of units that wait for signals or for children of their own."""

from collections.abc import Iterator

from interlock.core.advance import SIGNAL
from interlock.plugins.parking.queries import read_ended_children, read_parked, read_signals
from interlock.plugins.parking.signals import BETWEEN, CHILD
from interlock.store.connection import Connection

PAGE = 500


def find_sleepers(connection: Connection) -> Iterator[tuple[int, str]]:
    """Units that wait for what has come already, so that nobody would wake them, or that are held while they wait."""
    parked = read_parked(connection)
    for start in range(0, len(parked), PAGE):
        page = parked[start : start + PAGE]
        for unit, _, lease in page:
            if lease is not None:
                yield unit, "it is parked, and somebody holds it"
        waits = {(unit, source, name) for unit, key, _ in page for source, name in parse_key(key)}
        came = read_signals(connection, (source for _, source, _ in waits))
        parents = (source for _, source, name in waits if name.startswith(CHILD))
        came |= {(parent, CHILD + name) for parent, name in read_ended_children(connection, parents)}
        for unit, source, name in sorted(waits):
            if (source, name) in came:
                yield unit, f"it is parked on the signal '{name}' of unit {source}, which has come"


def parse_key(key: str) -> Iterator[tuple[int, str]]:
    """Whose signals a key means, and their names."""
    source, _, names = key.removeprefix(SIGNAL).partition(":")
    return ((int(source), name) for name in names.split(BETWEEN))
