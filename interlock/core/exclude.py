"""Find the units that make a claim or a tick fail, and run it again without them.

What Python finds out of a unit is known at once (`CannotProceed`). What the database refuses names no unit, so the
units that were picked are tried in halves, each in a transaction that is rolled back, until the bad ones are known.
What becomes of them is said in `withhold.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interlock.core.failures import Spoilt, explain, is_passing
from interlock.core.pending import PendingCommand, Result
from interlock.core.reactions import run_reactions
from interlock.core.withhold import CannotProceed, find_unknown, pass_over, withhold
from interlock.kernel.commands import Command
from interlock.store.unit_of_work import Picks, open_unit_of_work

if TYPE_CHECKING:
    from interlock.core.committer import Committer
ROUNDS_MAX = 100  # so often a claim or a tick is run again without units that fail


def run_excluding(committer: "Committer", group: list[PendingCommand], error: Exception) -> list[Result]:
    """Runs a group again that has failed: a claim or a tick that is alone, without the units that it fails of.

    Raises:
        Exception: the error, if there is nothing that could be left out.
    """
    if len(group) > 1 or committer.lent:
        raise error
    for _ in range(ROUNDS_MAX):
        if is_passing(error) or not exclude_failing(committer, group[0], error):
            raise error
        try:
            return committer.run_with_retries(group)
        except Exception as again:
            error = again
    raise error


def exclude_failing(committer: "Committer", pending: PendingCommand, error: Exception) -> bool:
    """Takes the units out that stood in the way of a claim or a tick. Returns whether it may be run again."""
    picked = sorted(committer.chosen)
    if isinstance(error, CannotProceed):
        failures = error.failures
    elif picked and try_units(committer, pending.command, ()) is None:
        failures = find_failures(picked, lambda units: try_units(committer, pending.command, units))
    else:
        failures = {}
    if failures:
        take_out(committer, pending.command.tenant, failures)
    return bool(failures)


def find_failures(units: Sequence[int], attempt: Callable[[Sequence[int]], Exception | None]) -> dict[int, Exception]:
    """Which of these units fail, and how: those that go well together are not tried again."""
    error = attempt(units) if units else None
    if error is None:
        return {}
    if len(units) == 1:
        return {units[0]: error}
    half = len(units) // 2
    return {**find_failures(units[:half], attempt), **find_failures(units[half:], attempt)}


def try_units(committer: "Committer", command: Command[Any], units: Sequence[int]) -> Exception | None:
    """What goes wrong when a command may pick these units and no others. Nothing of it stays."""
    tx = committer.open_tx([command])
    tx.state(Picks).allowed = frozenset(units)
    try:
        committer.run_command(tx, command)
        run_reactions(tx)
        committer.connection.rows("SELECT 1")  # what was sent without waiting has been answered then
    except Exception as error:
        if is_passing(error):
            raise
        cause = error.__cause__ if isinstance(error, Spoilt | CannotProceed) else error
        return explain(cause if isinstance(cause, Exception) else error)
    finally:
        committer.connection.rollback()
    return None


def take_out(committer: "Committer", tenant: int, failures: Mapping[int, Exception]) -> None:
    """Units that failed are withheld; where that fails too, or they fail only here, they are passed over here."""
    committer.ids.reserve(len(failures))
    tx = open_unit_of_work(
        committer.connection, committer.lifecycles, committer.ids, [tenant], committer.hooks, cache=committer.cache
    )
    try:
        here = find_unknown(tx, failures)
        pass_over(tx, here)
        withhold(tx, {unit: error for unit, error in failures.items() if unit not in here})
        committer.finish_tx(tx)
    except Exception as error:
        committer.connection.rollback()
        if is_passing(error):
            raise
        pass_over(tx, failures)
