"""Git repositories of a worker: a worktree per attempt, a commit at its end, merges, and cleanup.

Each attempt of work with a repository gets a worktree of its own, in a folder beside the repository. When its handler
has returned, what changed there is committed, the commit is kept under the attempt's own reference
(`refs/interlock/WORKSTREAM/TASK-FENCE`), and its id goes into the result. Whether that result counts is for the engine
to say: a worker that has lost its lease leaves a commit behind, and nothing else.

Merges are jobs, `git.merge`. What they merge is named by results that the engine has accepted, and never by a branch.
Into a workstream they merge from the head that the engine knows; the branch of the workstream is only moved after it,
for people to look at. Onto a target branch they merge without a checkout, and the branch is moved if it is still where
it was; right before that the engine is asked whether the lease still holds.

What is ugly: between that answer and the move of the branch a process can be stopped, and go on after its lease was
lost. The branch is compared, so nothing is merged twice and nobody's commit is lost; but a workstream that has failed
meanwhile, because its merge took longer than the gate's clock, is merged after all.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from interlock.client.context import Context
from interlock.client.exceptions import Cancelled
from interlock.git import BranchMoved, GitError, LocalChanges, MergeOutcome, Repository
from interlock.kernel.commands import Heartbeat
from interlock.kernel.commits import COMMIT, add_commit
from interlock.kernel.errors import InterlockError, PermanentError, TransientError
from interlock.kernel.ids import format_id
from interlock.plugins.repositories.options import (
    CHECKING,
    CLEAN,
    CLEANING,
    MERGE,
    MERGING,
    WORKING,
    RepositoryOrder,
    check_repository_name,
    make_capability,
    read_order,
)
from interlock.worker.context import JobContext, check_accepted
from interlock.worker.execution import Execution
from interlock.worker.log_lines import log_job

if TYPE_CHECKING:
    from interlock.client.app import App

Call = Callable[[Execution], Awaitable[Any]]
BASE = "base"  # the reference of the commit at which a workstream began
FOLDER = ".interlock"  # what the name of the folder of worktrees ends with
UNRELATED = "unrelated histories"


def offer_repositories(
    app: "App", capabilities: tuple[str, ...], served: "ServedRepositories | None"
) -> tuple[str, ...]:
    """Lets an app merge, and returns the capabilities of its worker; without repositories nothing is added.

    Raises:
        InterlockError: such a capability is given by itself, or the app has a task of its own under one of the names.
    """
    if given := [word for word in capabilities if word.startswith(make_capability(""))]:
        raise InterlockError(f"the capability '{given[0]}' is not given by name: --repo gives it, with the repository")
    if served is None:
        return capabilities
    app.define(served.merge, MERGE, {})
    app.define(served.clean, CLEAN, {})
    return (*capabilities, *map(make_capability, served.repositories))


def parse_repositories(texts: list[str]) -> dict[str, str]:
    """Returns paths by name of texts such as `site=/srv/site`.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    paths: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not path:
            raise InterlockError(f"--repo = '{text}' is not allowed; allowed is a name and a folder, as in site=.")
        if check_repository_name(name) in paths:
            raise InterlockError(f"--repo names '{name}' twice; a name stands for one repository")
        paths[name] = path
    return paths


class ServedRepositories:
    """The repositories that a worker has, by name."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        """Opens them.

        Raises:
            GitError: a folder that is no repository.
        """
        self.repositories = {check_repository_name(name): Repository(path) for name, path in paths.items()}

    def find(self, order: RepositoryOrder) -> Repository:
        return self.repositories[order.repo]

    # An attempt in a worktree.

    async def call_handler(self, call: Call, execution: Execution) -> Any:
        """Calls a handler, in a worktree of its own if its job has a repository."""
        order = read_order(execution.grant.options)
        if order is None or order.role not in (WORKING, CHECKING):
            return await call(execution)
        context = execution.context
        context.worktree = await asyncio.to_thread(self.open_worktree, order, context)
        try:
            value = await call(execution)
            if order.role == WORKING:
                value = add_commit(value, await asyncio.to_thread(self.commit, order, context))
        except BaseException:
            await asyncio.to_thread(self.leave_worktree, order, context)
            raise
        await asyncio.to_thread(self.remove_worktree, order, context)
        return value

    def open_worktree(self, order: RepositoryOrder, context: JobContext) -> str:
        """Makes the worktree of an attempt, and returns its path."""
        repository = self.find(order)
        commit = find_checked(context) if order.role == CHECKING else ""
        place = os.path.join(find_folder(repository), order.name, name_attempt(context))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        repository.add_worktree(place, commit or find_start(repository, order))
        if context.cancelled:  # perhaps nobody waits for it any more
            repository.remove_worktree(place, force=True)
            raise Cancelled("it was asked to stop before it started")
        return place

    def commit(self, order: RepositoryOrder, context: JobContext) -> str:
        """Commits what has changed in the worktree of an attempt; what the handler committed itself is below it."""
        repository, grant = self.find(order), context.grant
        assert context.worktree
        name = format_id(grant.lifecycle, grant.unit)
        message = f"{grant.task} ({name})\n\n{format_trailers(context, name)}"
        commit = repository.commit_dirty(context.worktree, message)
        return repository.keep(f"{order.name}/{name_attempt(context)}", commit)

    def remove_worktree(self, order: RepositoryOrder, context: JobContext) -> None:
        """Removes a worktree whose changes are committed, or count for nothing."""
        assert context.worktree
        try:
            self.find(order).remove_worktree(context.worktree, force=True)
            remove_empty_folder(os.path.dirname(context.worktree))
        except GitError as error:
            log_job(logging.WARNING, "worktree not removed", context.grant, str(error))

    def leave_worktree(self, order: RepositoryOrder, context: JobContext) -> None:
        """Removes the worktree of an attempt that has failed, unless there are changes in it, or somebody is."""
        is_used = context.thread is not None and not context.thread.done()
        if not is_used and (order.role == CHECKING or not self.has_changes(order, str(context.worktree))):
            self.remove_worktree(order, context)
        else:
            context.write_log(f"its worktree is kept: {context.worktree}\n".encode(errors="backslashreplace"))

    def has_changes(self, order: RepositoryOrder, place: str) -> bool:
        """Whether a worktree has something that is in no commit of its attempt; if that is not known, it has."""
        repository = self.find(order)
        try:
            if not repository.is_dirty(place):  # then its commit must be kept by some reference
                head = repository.git_in(place, "rev-parse", "HEAD").text
                return not repository.git("for-each-ref", "--count=1", f"--contains={head}").out
            kept = repository.resolve(f"refs/interlock/{order.name}/{os.path.basename(place)}")
            return repository.read_tree_id(repository.commit_dirty(place)) != repository.read_tree_id(kept)
        except GitError:
            return True

    # Merging.

    def merge(self, ctx: Context, onto: str = "") -> dict[str, Any]:
        """Merges the commit of a task into its workstream, or the head of a workstream onto a branch.

        Raises:
            PermanentError: they conflict, or the branch cannot be moved without losing somebody's work.
            TransientError: the branch was moved meanwhile.
        """
        assert isinstance(ctx, JobContext)
        order = read_order(ctx.grant.options)
        if order is None or order.role != MERGING:
            raise PermanentError("this job has nothing to merge; a merge is a check of a workstream")
        repository = self.find(order)
        try:
            if order.onto:
                return merge_onto(repository, order, ctx)
            return merge_into_workstream(repository, order, ctx)
        except BranchMoved as error:
            raise TransientError(str(error)) from None
        except LocalChanges as error:
            raise PermanentError(str(error)) from None
        except GitError as error:
            if UNRELATED in str(error):
                raise PermanentError(f"{error}; the two have no common commit") from None
            raise TransientError(str(error)) from None

    # The end of a workstream.

    def clean(self, ctx: Context, workstream: str = "") -> dict[str, Any]:
        """Removes the worktrees of a workstream that has ended; one with changes is kept and named. Branches stay."""
        assert isinstance(ctx, JobContext)
        order = read_order(ctx.grant.options)
        if order is None or order.role != CLEANING:
            raise PermanentError("this job has nothing to remove; a workstream that has ended makes one that has")
        repository = self.find(order)
        folder = os.path.join(find_folder(repository), order.name)
        half_made = repository.remove_half_made(folder)
        places = [tree.path for tree in repository.list_worktrees() if os.path.dirname(tree.path) == folder]
        removed, kept = half_made, []
        for place in places:
            if self.has_changes(order, place):
                kept.append(place)
                ctx.log(f"kept, because it has changes: {place}")
                continue
            with suppress(GitError):  # another worker has just removed it
                repository.remove_worktree(place, force=True)
                removed.append(place)
                ctx.log(f"removed: {place}")
        remove_empty_folder(folder)
        forget_merged(repository, order)
        return {"removed": len(removed), "kept": kept, "branch": order.branch}


def forget_merged(repository: Repository, order: RepositoryOrder) -> None:
    """Deletes the references of attempts whose commits the branch of the workstream has; others stay."""
    with suppress(GitError):  # there is no such branch, or somebody else does the same
        words = ("--format=delete %(refname) %(objectname)", f"--merged=refs/heads/{order.branch}")
        merged = repository.git("for-each-ref", *words, f"refs/interlock/{order.name}/").out
        repository.git("update-ref", "--stdin", stdin=merged, finishes=True)


def merge_into_workstream(repository: Repository, order: RepositoryOrder, ctx: JobContext) -> dict[str, Any]:
    """Merges the commit of a task. The head is the engine's word; the branch follows it, for people to look at."""
    commit = find_checked(ctx)
    if not commit:
        return {"already": True}  # the task has no commit
    base, task = find_start(repository, order), ctx.outputs.get("checked")
    message = f"Merge {task} into {order.branch}\n\n{format_trailers(ctx, str(task))}"
    merged = repository.make_merge(base, commit, message)
    refuse_conflicts(merged, f"into '{order.branch}'")
    assert merged.commit
    if not merged.already:
        repository.keep(f"{order.name}/{name_attempt(ctx)}", merged.commit)
        check_accepted(ctx.sender.send(Heartbeat(tenant=ctx.tenant, held=(ctx.held,))))
    publish(repository, order.branch, merged.commit)
    own = {"already": True} if merged.already else {}
    return {COMMIT: merged.commit, "merged": commit, "base": base, "branch": order.branch, **own}


def merge_onto(repository: Repository, order: RepositoryOrder, ctx: JobContext) -> dict[str, Any]:
    """Merges the head of a workstream onto a branch."""
    if not order.head:
        return {"already": True, "onto": order.onto}  # none of its tasks has changed anything
    if repository.git("rev-parse", "--verify", "--quiet", f"refs/heads/{order.onto}", accepted=(0, 1)).code:
        raise PermanentError(f"there is no branch '{order.onto}' in the repository '{order.repo}'")

    def refuse_lost_lease() -> None:
        ctx.refuse_late_start()
        check_accepted(ctx.sender.send(Heartbeat(tenant=ctx.tenant, held=(ctx.held,))))

    message = f"Merge {order.name} onto {order.onto}\n\n{format_trailers(ctx, order.name)}"
    merged = repository.merge(order.onto, order.head, message, before_move=refuse_lost_lease)
    refuse_conflicts(merged, f"onto '{order.onto}'")
    own = {"already": True} if merged.already else {}
    return {COMMIT: merged.commit, "merged": order.head, "onto": order.onto, **own}


def refuse_conflicts(merged: MergeOutcome, where: str) -> None:
    """Raises PermanentError with the names of the files."""
    if merged.conflicts:
        raise PermanentError(f"it conflicts {where} in {', '.join(merged.conflicts)}")


def publish(repository: Repository, branch: str, commit: str) -> None:
    """Moves the branch of a workstream to where the engine is; whoever has it checked out with changes keeps it."""
    with suppress(GitError):
        words = ("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
        old = repository.git(*words, accepted=(0, 1)).text
        if old == commit:
            return
        checkout = repository.find_checkout(branch)
        if checkout is None:
            repository.move_branch(branch, commit, old or None)
        else:
            repository.follow(checkout, branch, commit, old)


def find_start(repository: Repository, order: RepositoryOrder) -> str:
    """Returns the commit at which work begins: the head that the engine knows, or the one that the first work found."""
    if order.head:
        return order.head
    commit = repository.resolve(order.ref or "HEAD")
    return repository.keep(f"{order.name}/{BASE}", commit) if order.branch else commit


def find_checked(ctx: JobContext) -> str:
    """Returns the commit of what a check checks: that of a task by its result, that of a workstream by its head."""
    result = ctx.outputs.get("result")
    commit = result.get(COMMIT) if isinstance(result, dict) else None
    return commit if isinstance(commit, str) else ""


def format_trailers(ctx: JobContext, unit: str) -> str:
    """Returns the lines that say what a commit belongs to, and by which lease it was made."""
    job = format_id(ctx.grant.lifecycle, ctx.grant.unit)
    return f"Interlock-Unit: {unit}\nInterlock-Job: {job}\nInterlock-Fence: {ctx.fence}\n"


def name_attempt(ctx: JobContext) -> str:
    """Names an attempt, as in the name of its worktree."""
    return f"{format_id(ctx.grant.lifecycle, ctx.grant.unit)}-{ctx.fence}"


def find_folder(repository: Repository) -> str:
    """Returns the folder of the worktrees of a repository, beside it: no checkout has anything of them in it."""
    own = repository.folder
    root = os.path.dirname(own) if os.path.basename(own) == ".git" else own
    return root + FOLDER


def remove_empty_folder(folder: str) -> None:
    """Removes the folder of a workstream, and that of the repository, if nothing is left in them."""
    with suppress(OSError):
        os.rmdir(folder)
        os.rmdir(os.path.dirname(folder))
