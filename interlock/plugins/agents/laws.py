"""What is true of agent runs at every commit."""

from collections import Counter
from collections.abc import Iterator

from interlock.kernel.budgets import ACTIVE
from interlock.kernel.commands import LOCAL
from interlock.plugins.agents.queries import (
    read_all_meters,
    read_all_usage,
    read_decisions,
    read_holders,
    read_open_jobs,
    read_resting_jobs,
    read_runs_above,
    read_validation_verdicts,
)
from interlock.store.connection import Connection


def find_second_jobs(connection: Connection) -> Iterator[tuple[int, str]]:
    """Runs with more than one open job."""
    for run, _, count in read_open_jobs(connection):
        if count > 1:
            yield run, f"it has {count} open jobs"


def find_left_jobs(connection: Connection) -> Iterator[tuple[int, str]]:
    """Runs that have ended, and have an open job."""
    for run, outcome, _ in read_open_jobs(connection):
        if outcome is not None:
            yield run, f"its outcome is {outcome}, and it has an open job"


def find_nameless_resumes(connection: Connection) -> Iterator[tuple[int, str]]:
    """Runs that were resumed by nobody, or for no reason."""
    for run, trigger, actor, reason in read_decisions(connection):
        if trigger == "resume" and (actor in ("", LOCAL) or not reason):
            yield run, f"it was resumed by '{actor}', for the reason '{reason}'"


def find_own_verdicts(connection: Connection) -> Iterator[tuple[int, str]]:
    """Runs that were judged by a worker which held their job."""
    verdicts = [decision for decision in read_decisions(connection) if decision[1] != "resume"]
    verdicts += [(run, trigger, actor, "") for run, trigger, actor in read_validation_verdicts(connection)]
    holders = read_holders(connection) if verdicts else {}
    for run, trigger, actor, _ in verdicts:
        if actor in holders.get(run, ()):
            yield run, f"'{trigger}' is the word of '{actor}', which held its job"


def find_wrong_meters(connection: Connection) -> Iterator[tuple[int, str]]:
    """Runs whose meters are not the sum of what they, and the runs below them, have recorded; time is not recorded."""
    meters, above = read_all_meters(connection), read_runs_above(connection)
    sums: dict[int, Counter[str]] = {}
    for run, used in read_all_usage(connection):
        top: int | None = run
        while top is not None:
            sums.setdefault(top, Counter()).update(used)
            top = above.get(top)
    for run in sorted({*meters, *sums}):
        used, total = meters.get(run, {}), sums.get(run, Counter())
        for name in sorted({*used, *total} - {ACTIVE}):
            if used.get(name, 0) != total[name]:
                yield run, f"its meter of {name} is {used.get(name, 0)}, and what it recorded comes to {total[name]}"


def find_lost_validations(connection: Connection) -> Iterator[tuple[int, str]]:
    """Jobs that rest until a verdict falls, while their run is not in its gate."""
    for job, key, state in read_resting_jobs(connection):
        yield job, f"it waits for '{key}', and its run is {state}"


LAWS = {
    "a job that rests for a verdict has its run in the gate": find_lost_validations,
    "meters of agent runs are the sum of what was recorded": find_wrong_meters,
    "an agent run has at most one open job": find_second_jobs,
    "an agent run that has ended has no open job": find_left_jobs,
    "every resume of an agent run has a name and a reason": find_nameless_resumes,
    "no holder judges its own agent run": find_own_verdicts,
}
