"""Who may judge an agent run: checks and people, and never a worker that holds its job, or has held it."""

from interlock.kernel.commands import Decide
from interlock.kernel.errors import NotWanted
from interlock.kernel.rows import Unit
from interlock.plugins.agents.queries import read_granted_workers
from interlock.store.unit_of_work import UnitOfWork


def refuse_own_verdict(tx: UnitOfWork, run: Unit, command: Decide) -> None:
    """Raises NotWanted if a worker that holds the run's job, or has held it, judges it."""
    if command.actor in read_granted_workers(tx, run.id):
        raise NotWanted(
            f"'{command.trigger}' is a verdict: checks or people give it, never the holder of the work, and "
            f"'{command.actor}' holds it, or has held it"
        )
