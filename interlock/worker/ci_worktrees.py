"""Worktrees of CI jobs on one machine, and the settings that all jobs of a repository share."""

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from interlock.git import Repository
from interlock.kernel.errors import InterlockError
from interlock.plugins.ci.checkout import Checkout
from interlock.process.sandbox import NOBODY

WORKSPACE = "INTERLOCK_WORKSPACE"  # the variable that tells a step in which folder its job has its files


@dataclass(frozen=True, kw_only=True)
class CiSettings:
    """How jobs are run.

    Parameters:
        checkout: the repository that they check.
        folder: where their worktrees are made.
        queue: where they wait; it is a part of the names of the worktrees.
        environment: variables that every step gets.
        secrets: where the values of secrets are found by their names.
        sandbox: whether steps run in bubblewrap, without the network unless their job asks for it.
    """

    checkout: Checkout
    folder: str
    queue: str
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    sandbox: bool = False


def make_worktree(settings: CiSettings, place: str, commit: str, stop: Callable[[], bool]) -> None:
    """Checks a commit out into a folder that is not there; `stop` says whether nobody waits for it any more.

    Raises:
        GitError: git refused or was stopped; the text is what git says.
        OSError: the folder cannot be made.
    """
    settings.checkout.repository.stopped_by(stop).add_worktree(place, commit)
    if settings.sandbox and os.geteuid() == 0:  # in the sandbox it becomes a user who owns nothing else
        give_away(place)


def give_away(folder: str) -> None:
    """Gives all files of a folder to the user that a sandbox becomes."""
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(os.path.join(root, name), NOBODY, NOBODY)
    os.chown(folder, NOBODY, NOBODY)


def remove_worktree(repository: Repository, place: str) -> None:
    """Removes a worktree and all files in it, also one that git does not know any more."""
    with suppress(InterlockError):
        repository.remove_worktree(place, force=True)
    if os.path.lexists(place):
        for root, folders, _ in os.walk(place):
            for name in folders:  # a step may have made a folder that nobody may write to
                path = os.path.join(root, name)
                if not os.path.islink(path):
                    with suppress(OSError):
                        os.chmod(path, 0o700)
        shutil.rmtree(place, ignore_errors=True)
    repository.forget_worktree(place)
