"""What is true of CI at every commit."""

from collections.abc import Iterator

from interlock.plugins.ci.queries import read_unfit_results, read_wrong_reuses
from interlock.store.connection import Connection


def find_unfit_results(connection: Connection) -> Iterator[tuple[int, str]]:
    """Finds results that say something else than their attempt."""
    for unit, kind, state in read_unfit_results(connection):
        yield unit, f"its result is '{kind}', and it is {state}"


def find_wrong_reuses(connection: Connection) -> Iterator[tuple[int, str]]:
    """Finds attempts that took over a result with another fingerprint, or one that was no success."""
    for unit, kind in read_wrong_reuses(connection):
        yield unit, f"it took over a result of kind '{kind}', or one with another fingerprint"


LAWS = {
    "the result of a CI attempt is what came of it": find_unfit_results,
    "a CI job takes over successes with its own fingerprint": find_wrong_reuses,
}
