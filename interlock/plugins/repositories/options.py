"""What work says of a repository, and what its worker is told: which one, from which commit, and what to merge."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from interlock.git.repository import check_branch_name, check_revision
from interlock.kernel.commands import Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle

NAME = "repositories"  # of the plugin, and of its member of `Work.options`
CHECKS = "checks"  # the member that says how work is checked
WORKSTREAM = "workstream"
MERGE, CLEAN = "git.merge", "git.clean"  # tasks that workers with repositories have
WORKING, CHECKING, MERGING, CLEANING = "work", "check", "merge", "clean"  # what a worker does with a repository
CAPABILITY = "repo:"
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# A merge that lost a race is tried again soon, and one whose worker was lost for as long as there are workers.
MERGE_TERMS: dict[str, int] = {"attempts": 20, "losses": 200, "backoff_us": 100_000, "backoff_cap_us": 5_000_000}


class RepositoryOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What work says of its repository. The last three are the engine's: what others say there is not kept."""

    repo: str = ""  # the name under which workers serve it; empty: none, also below a workstream that has one
    ref: str = ""  # the revision at which it begins; by default the repository's HEAD
    branch: str = ""  # of a workstream: the name of its branch; by default interlock/ID
    stream: int = 0  # the workstream that it belongs to; 0: none
    role: str = ""  # of what the engine makes: check, merge or clean
    onto: str = ""  # of a merge: the branch that is moved; empty: that of the workstream


class RepositoryOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker is told with a grant."""

    repo: str
    role: str
    name: str  # the workstream, or the job itself: what its references and its worktrees are kept under
    ref: str = ""
    branch: str = ""  # of the workstream
    head: str = ""  # the commit of the last accepted merge into the workstream; empty: there was none
    onto: str = ""


def make_capability(repo: str) -> str:
    """Returns the capability of workers that serve a repository."""
    return CAPABILITY + repo


def check_repository_name(repo: str) -> str:
    """Returns the name of a repository.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if not REPOSITORY.fullmatch(repo):
        allowed = "1 to 100 letters, digits, and . _ -, not first of these three"
        raise InterlockError(f"the repository {repo[:40]!r} is not allowed; allowed are {allowed}")
    return repo


def read_members(text: str | None) -> dict[str, Any]:
    """Returns the members of options; none of options that another check refuses."""
    if text is None:
        return {}
    try:
        members = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return members if isinstance(members, dict) else {}


def read_repository(text: str | None) -> RepositoryOptions | None:
    """Returns what options say of a repository; None if they say nothing."""
    if text is None or NAME not in text or (value := read_members(text).get(NAME)) is None:
        return None
    return msgspec.convert(value, RepositoryOptions)


def read_order(text: str | None) -> RepositoryOrder | None:
    """Returns what a worker is told of a repository; None if its job has none."""
    if text is None or NAME not in text or (value := read_members(text).get(NAME)) is None:
        return None
    return msgspec.convert(value, RepositoryOrder)


def encode_members(members: Mapping[str, Any]) -> str:
    """Returns members of options, or another object, as JSON text."""
    return msgspec.json.encode(members).decode()


def check_repository(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """Check what work says of a repository, and that it merges where it can.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    given = read_repository(work.options)
    if given is not None:
        if given.repo:
            check_repository_name(given.repo)
        if given.ref:
            check_revision(given.ref)
        if given.branch:
            check_branch_name(given.branch)
        if given.branch and work.lifecycle != WORKSTREAM:
            raise InterlockError(f"branch is not allowed for a {work.lifecycle}; a {WORKSTREAM} has one")
    if work.options is not None and CLEAN in work.options and any(job == CLEAN for job in list_check_tasks(work)):
        raise InterlockError(f"'{CLEAN}' is no check; the engine makes it when a {WORKSTREAM} has ended")
    for job in list_merges(work):
        if work.lifecycle != WORKSTREAM or given is None or not given.repo:
            raise InterlockError("a merge is a check of a workstream that has a repository (its option repo)")
        read_onto(job)


def list_merges(work: Work) -> list[Mapping[str, Any]]:
    """Returns the merges among the checks of work."""
    if work.options is None or MERGE not in work.options:
        return []
    jobs = list_check_jobs(work)
    merges = [{"task": job} if isinstance(job, str) else job for job in jobs if is_merge(job)]
    # The merge of each task into its workstream is the engine's own, which names no branch.
    return [job for job in merges if not (work.lifecycle != WORKSTREAM and job.get("input") == "{}")]


def list_check_jobs(work: Work) -> list[Any]:
    """Returns the checks of work as its options spell them: names of tasks, or objects."""
    checks = read_members(work.options).get(CHECKS)
    lists = [checks.get(name) for name in ("jobs", "last")] if isinstance(checks, dict) else []
    return [job for jobs in lists if isinstance(jobs, list) for job in jobs]


def list_check_tasks(work: Work) -> list[Any]:
    """Returns the tasks of the checks of work."""
    return [job.get("task") if isinstance(job, dict) else job for job in list_check_jobs(work)]


def is_merge(job: Any) -> bool:
    """Whether a check, as options spell it, is a merge."""
    return job == MERGE or (isinstance(job, dict) and job.get("task") == MERGE)


def read_onto(job: Mapping[str, Any]) -> str:
    """Returns the branch that a merge names.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    try:
        onto = msgspec.json.decode(job.get("input") or "{}").get("onto")
    except (msgspec.MsgspecError, AttributeError, TypeError, RecursionError):
        onto = None
    if not isinstance(onto, str) or not onto:
        raise InterlockError("a merge names the branch that it moves, as in interlock.merge(onto='main')")
    return check_branch_name(onto)
