"""What the planner needs to know of a repository: its tree as it is, what has changed, and which config it has.

The working tree becomes a commit that nothing refers to: neither the index nor HEAD nor a branch moves, and ignored
files stay out.
"""

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from interlock.git import Repository
from interlock.git.command import run_git
from interlock.kernel.errors import InterlockError
from interlock.plugins.ci.config import CONFIG_FILE, CiConfig
from interlock.plugins.ci.discovery import READ_FILES, discover
from interlock.plugins.ci.old_config import OLD_FILE
from interlock.plugins.ci.requests import PlanRequest

MAIN_BRANCHES = ("refs/remotes/origin/HEAD", "refs/remotes/origin/main", "refs/remotes/origin/master",
                 "refs/heads/main", "refs/heads/master")  # fmt: skip
ATTRIBUTES, FILES_READ = ".gitattributes", 20
SUBMODULE = "160000"  # the mode of one in a tree


@dataclass(frozen=True)
class Checkout:
    """A repository and its working tree."""

    repository: Repository
    root: str

    def stopped_by(self, stop: Callable[[], bool]) -> "Checkout":
        """Returns the same checkout, whose calls of git end soon after nobody waits for them any more."""
        return Checkout(self.repository.stopped_by(stop), self.root)


@dataclass(frozen=True)
class WorkingTree:
    """A working tree as it is."""

    commit: str
    tree: dict[str, str]  # the mode and the id of each file by its path


def find_checkout(folder: str | Path) -> Checkout:
    """Returns the repository to which a folder belongs.

    Raises:
        InterlockError: there is none, or it has no working tree.
    """
    if not os.path.isdir(folder):
        raise InterlockError(f"there is no folder '{folder}'")
    result = run_git(
        ["rev-parse", "--is-bare-repository", "--is-inside-work-tree"], directory=folder, accepted=(0, 128)
    )
    if result.code and "not a git repository" in result.err:
        raise InterlockError(f"'{folder}' is in no git repository; go to one, or make one with `git init`")
    if result.code:
        raise InterlockError(f"git does not open '{folder}': {result.err.strip().splitlines()[0]}")
    bare, inside = result.text.split("\n")
    if bare == "true":
        raise InterlockError(f"'{folder}' is a bare repository, which has no files to check; go to a clone of it")
    if inside != "true":
        raise InterlockError(f"'{folder}' is inside the .git folder; go to the files of the repository")
    root = run_git(["rev-parse", "--show-toplevel"], directory=folder).text
    return Checkout(Repository(root), root)


def take_snapshot(checkout: Checkout, *, tracked: bool = False) -> WorkingTree:
    """Returns the working tree as it is; with `tracked` without the files that git does not track."""
    commit = checkout.repository.commit_dirty(checkout.root, tracked=tracked, ignores=find_own_ignores())
    return read_tree(checkout, commit)


def find_own_ignores() -> str:
    """Returns the file in which a user says what git ignores in all repositories; the empty file if there is none."""
    home = os.path.expanduser("~")
    folder = os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "git")
    for file in (os.path.join(home, ".gitconfig"), os.path.join(folder, "config")):
        if os.path.isfile(file):
            words = ("config", "--file", file, "--includes", "--type=path", "--get", "core.excludesFile")
            named = run_git(words, directory="/", environment={"HOME": home}, accepted=(0, 1, 128))
            if named.code == 0:
                return named.text
    ignores = os.path.join(folder, "ignore")
    return ignores if os.path.isfile(ignores) else os.devnull


def read_tree(checkout: Checkout, commit: str) -> WorkingTree:
    """Returns the files of a commit."""
    lines = checkout.repository.git("ls-tree", "-r", "-z", "--full-tree", commit).out.split(b"\0")
    tree = {}
    for line in lines:
        facts, _, path = line.decode(errors="backslashreplace").partition("\t")
        if path:
            mode, _, blob = facts.split(" ")
            tree[path] = f"{mode} {blob}"
    return WorkingTree(commit, tree)


def read_branch(checkout: Checkout) -> str | None:
    """Returns the branch that is checked out; None if HEAD is detached."""
    result = checkout.repository.git_in(checkout.root, "symbolic-ref", "--quiet", "HEAD", accepted=(0, 1))
    return result.text.removeprefix("refs/heads/") if result.code == 0 else None


def read_config_files(checkout: Checkout, snapshot: WorkingTree) -> dict[str, bytes]:
    """Returns what decides the jobs of a working tree: its config, or without one the files that say what it is."""
    configs = [file for file in (CONFIG_FILE, OLD_FILE) if is_file(snapshot, file)]
    names = configs or [file for file in READ_FILES if is_file(snapshot, file)]
    return {name: checkout.repository.read_file(snapshot.commit, name) for name in names}


def is_file(snapshot: WorkingTree, path: str) -> bool:
    """Whether a path is a file of a working tree, and neither a link nor a submodule."""
    return path in snapshot.tree and not snapshot.tree[path].startswith(("120000", SUBMODULE))


def find_ignored(checkout: Checkout, snapshot: WorkingTree) -> tuple[str, ...]:
    """Returns the configs that are there, and that git ignores."""
    return tuple(
        file
        for file in (CONFIG_FILE, OLD_FILE)
        if file not in snapshot.tree and os.path.isfile(os.path.join(checkout.root, file))
    )


def discover_jobs(checkout: Checkout, snapshot: WorkingTree) -> CiConfig | None:
    """Returns the jobs that a working tree without a config has; None if nothing is known of it."""
    texts = {
        name: checkout.repository.read_file(snapshot.commit, name).decode(errors="replace")
        for name in READ_FILES
        if is_file(snapshot, name)
    }
    return discover(snapshot.tree.keys(), texts)


def find_notices(checkout: Checkout, snapshot: WorkingTree) -> list[str]:
    """Returns sentences on what of a working tree jobs do not get."""
    notices = []
    if submodules := [path for path, blob in snapshot.tree.items() if blob.startswith(SUBMODULE)]:
        notices.append(
            f"submodules are empty folders in jobs ({', '.join(submodules[:3])}{', …' if submodules[3:] else ''}); "
            "a step with `git submodule update --init` fills them"
        )
    attributes = [path for path in snapshot.tree if os.path.basename(path) == ATTRIBUTES and is_file(snapshot, path)]
    if any(b"filter=lfs" in checkout.repository.read_file(snapshot.commit, path) for path in attributes[:FILES_READ]):
        notices.append("files of Git LFS are pointers in jobs; a step with `git lfs pull` fetches them")
    return notices


def find_branch(checkout: Checkout, branch: str | None, tag: str | None) -> str | None:
    """Returns the branch that a working tree is on; None for a tag.

    Raises:
        InterlockError: the repository has no commit, or HEAD is detached and no branch is named.
    """
    repository = checkout.repository
    known = repository.git_in(checkout.root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", accepted=(0, 1))
    if known.code:
        empty = not repository.git_in(checkout.root, "status", "--porcelain", "-z").out
        words = "is empty; add files and commit them" if empty else "has no commit yet; make the first one"
        raise InterlockError(f"the repository '{checkout.root}' {words}")
    branch = branch if branch is not None or tag is not None else read_branch(checkout)
    if branch is None and tag is None:
        raise InterlockError(f"HEAD is detached in '{checkout.root}', so its branch is not known: give --branch NAME")
    return branch


def read_request(
    checkout: Checkout, snapshot: WorkingTree, *, base: str | None = None, event: str = "manual",
    branch: str | None = None, tag: str | None = None, only: tuple[str, ...] = (), sandbox: bool = False,
) -> PlanRequest:  # fmt: skip
    """Returns what a plan of a working tree depends on, as it stands in the repository.

    Parameters:
        base: the revision with which it is compared; by default the main branch.
        only: jobs that are wanted, with those that they need; by default those that a change needs.
        sandbox: whether jobs run in a sandbox: what succeeds without one may fail there.

    Raises:
        InterlockError: the repository has no files, or there is no such revision.
    """
    if not snapshot.tree:
        raise InterlockError(f"the repository '{checkout.root}' is empty; add files and commit them")
    commit, changed, unknown = compare(checkout, snapshot, base)
    return PlanRequest(
        files=read_config_files(checkout, snapshot), ignored=find_ignored(checkout, snapshot),
        head=checkout.repository.read_tree_id(snapshot.commit), base=commit, changed=changed, unknown_because=unknown,
        tree=snapshot.tree, event=event, branch=branch, tag=tag, only=only,
        platform=describe_platform(sandbox=sandbox),
    )  # fmt: skip


def describe_platform(*, sandbox: bool) -> str:
    """Returns on what jobs run here: the operating system, the architecture, and what starts their steps."""
    return f"{sys.platform} {platform.machine()} {'sandbox' if sandbox else 'process'}"


def compare(checkout: Checkout, snapshot: WorkingTree, base: str | None) -> tuple[str, tuple[str, ...] | None, str]:
    """Returns the commit with which a working tree is compared, the paths that differ, and why those are not known."""
    repository = checkout.repository
    name = base or find_main_branch(repository)
    if name is None:
        return "", None, "there is no main branch to compare with, so everything is planned"
    shown = name.removeprefix("refs/heads/").removeprefix("refs/remotes/")
    other = repository.resolve(name)
    result = repository.git("merge-base", other, snapshot.commit, accepted=(0, 1))
    if result.code:
        return other, None, f"there is no common ancestor with '{shown}', so everything is planned"
    start = result.text
    changed = {
        path for change in repository.list_changes(start, snapshot.commit) for path in (change.path, change.old_path)
    }
    if not changed and base is None:
        return start, None, f"nothing differs from '{shown}', so everything is planned"
    return start, tuple(sorted(make_printable(path) for path in changed)), ""


def find_main_branch(repository: Repository) -> str | None:
    """Returns the first of the references that may be the main branch; None if there is none."""
    there = repository.git("for-each-ref", "--format=%(refname)", *MAIN_BRANCHES).text.split("\n")
    return next((name for name in MAIN_BRANCHES if name in there), None)


def make_printable(path: str) -> str:
    """Returns a path whose bytes are no UTF-8 as a text that can be printed."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")
