"""What is true of work with a repository, and of what was merged."""

from collections.abc import Iterator

import msgspec

from interlock.core.effective_policy import policy_in
from interlock.kernel.blobs import parse_reference
from interlock.plugins.repositories.options import make_capability, read_repository
from interlock.plugins.repositories.queries import (
    MergeNote,
    read_all_merges,
    read_beginnings,
    read_needing,
    read_results,
)
from interlock.store.connection import Connection


def find_unguarded_work(connection: Connection) -> Iterator[tuple[int, str]]:
    """Finds work that was granted to a worker which may not serve its repository."""
    for unit, policy, capabilities in read_needing(connection):
        try:
            options = read_repository(policy_in(policy).options)
        except (msgspec.MsgspecError, AttributeError):
            continue  # of a policy that cannot be read, another law speaks
        if options is not None and options.repo and make_capability(options.repo) not in capabilities.split(","):
            yield unit, f"it needs the repository '{options.repo}', and asks for the capabilities '{capabilities}'"


def find_wrong_merges(connection: Connection) -> Iterator[tuple[int, str]]:
    """Finds merges into a workstream that no accepted result names, and commits that were merged twice."""
    merges = read_all_merges(connection)
    results = read_results(connection, (unit for _, _, merge in merges for unit in (merge.task, merge.job)))
    numbers: dict[int, int] = {}
    heads = read_beginnings(connection)
    tasks: set[tuple[int, int]] = set()
    for stream, number, merge in merges:
        numbers[stream] = numbers.get(stream, 0) + 1
        if numbers[stream] != number:
            yield stream, f"its merge {numbers[stream]} is missing"
            numbers[stream] = number
        if (stream, merge.task) in tasks:
            yield stream, f"the commit of its task {merge.task} was merged twice"
        if heads.get(stream, merge.base) != merge.base:
            yield stream, f"its merge {number} begins at {merge.base}, and what was before it ended at {heads[stream]}"
        tasks.add((stream, merge.task))
        heads[stream] = merge.head
        yield from ((stream, why) for why in compare_merge(merge, results))


def compare_merge(merge: MergeNote, results: dict[int, tuple[str, str | None, str | None]]) -> Iterator[str]:
    """Compares a merge with the results that were accepted, as far as they are still there."""
    if (task := results.get(merge.task)) is not None and read_commit(task[2], "commit") not in (None, merge.commit):
        yield f"{merge.commit} was merged, which is not the result of task {merge.task}"
    if (job := results.get(merge.job)) is not None:
        if job[1] != "success":
            yield f"the merge by job {merge.job} counts, which did not succeed"
        elif read_commit(job[2], "commit") not in (None, merge.head):
            yield f"{merge.head} is its head, which is not the result of job {merge.job}"


def read_commit(text: str | None, member: str) -> str | None:
    """Returns a commit in a result; None if it is kept elsewhere, or there is none."""
    if text is None or parse_reference(text) is not None:
        return None
    value = msgspec.json.decode(text)
    return value.get(member) if isinstance(value, dict) else None


LAWS = {
    "work with a repository is held by workers that serve it": find_unguarded_work,
    "what is merged is the commit of an accepted result, once": find_wrong_merges,
}
