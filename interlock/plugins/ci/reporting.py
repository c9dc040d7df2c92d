"""The reporter of runs that no forge is told of: such a run is REPORTED as soon as it has ended (A4-26)."""

from interlock.core.advance import Stamp, advance
from interlock.plugins.ci.options import NOBODY, RUN, read_options_of
from interlock.store.hooks import Moved, Reaction
from interlock.store.unit_of_work import UnitOfWork

REPORT = "report"
REPORTER = Stamp("reporter", "no forge is told of this run")


def report_to_nobody(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Runs have ended: those that are told to nobody are reported."""
    for unit, _ in moved:
        own, run = read_options_of(tx.body(unit)), tx.rows.units[unit.id]
        if own is not None and own.report_to == NOBODY and tx.lifecycle(run).allows(run.state, REPORT):
            advance(tx, tx.act_for(run), REPORT, REPORTER)


REPORT_TO_NOBODY = Reaction(
    "report runs that no forge is told of", lambda kind: kind.lifecycle == RUN and kind.has_ended, report_to_nobody
)
