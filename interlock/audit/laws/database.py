"""Check the database itself: is the file undamaged, and is the guard the one that is shipped?"""

from collections.abc import Iterable, Iterator, Mapping

from interlock.audit.laws.rows import Broken
from interlock.kernel.errors import Corrupt
from interlock.kernel.lifecycle import Lifecycle
from interlock.store import guard
from interlock.store.connection import Connection

UNDAMAGED = "the file is not damaged"
GUARDED = "the guard is what the program ships"


def audit_itself(connection: Connection, lifecycles: Mapping[str, Lifecycle]) -> Iterator[Broken]:
    """Damage first: of a file that cannot be read, nothing else that is said can be trusted."""
    for text in guard.find_damage(connection):
        yield Broken(UNDAMAGED, 0, text)
    for text in guard.find_differences(connection, lifecycles.values()):
        yield Broken(GUARDED, 0, text)


def stop_at_damage(broken: Iterable[Broken]) -> Iterator[Broken]:
    """These findings; a page that cannot be read is one more, and the last."""
    try:
        yield from broken
    except Corrupt as error:
        yield Broken(UNDAMAGED, 0, f"{error}; what comes after this page was not asked")
