"""A git repository: revisions, trees, diffs, branches, merges without a checkout, worktrees, commits.

Everything here waits for git in the caller's thread; an async program calls it by `asyncio.to_thread`. Branches are
moved by compare-and-swap: a branch that somebody else moved meanwhile is left as it is (`BranchMoved`).
"""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from interlock.git.command import PROTOCOLS, SECONDS, BranchMoved, GitError, GitResult, LocalChanges, run_git
from interlock.kernel.errors import InterlockError
from interlock.process.run import never_stop

NO_REPOSITORY = "not a git repository"  # in what git says
NOTHING = ""  # as the old value of a branch: it must not exist
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # as the source of attributes: newer versions would read HEAD's
# What git says if another process makes a worktree meanwhile, or removes the folder that it was the last one in.
PASSING = re.compile(r"failed to read .*worktrees/.*/commondir|could not create leading directories")
PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # seconds until git is asked again
REVISION_MAX = 1000  # characters
WORD = re.compile(r"[^\x00-\x20\x7f]+")
STATUSES = {"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "C": "copied", "T": "retyped"}


@dataclass(frozen=True)
class FileChange:
    """One file that differs between two revisions."""

    status: str  # added, modified, deleted, renamed, copied or retyped
    path: str
    old_path: str  # the same unless it was renamed or copied


@dataclass(frozen=True)
class MergeOutcome:
    """What came of a merge: a commit, or the files that conflict. Then nothing was changed."""

    commit: str | None
    tree: str
    conflicts: tuple[str, ...] = ()
    already: bool = False  # the source was a part of the branch before


@dataclass(frozen=True)
class Worktree:
    """A working tree of a repository: where it is, what is checked out, and whether git would let it be removed."""

    path: str
    commit: str
    branch: str | None  # None if it is detached
    bare: bool = False


class Repository:
    """A git repository on this machine, bare or with a working tree."""

    def __init__(
        self, path: str | Path, *, seconds: float = SECONDS, name: str = "Interlock", email: str = "interlock@localhost"
    ) -> None:
        """Opens a repository.

        Parameters:
            path: the repository, or a folder in its working tree.
            seconds: how long each call of git may take.
            name: the author and committer of the commits that are made here.
            email: the address of that author.

        Raises:
            GitError: there is no repository.
        """
        self.seconds, self.stop = seconds, never_stop
        self.known: set[str] = set()  # ids of commits that were there
        for word in (name, email):
            if not isinstance(word, str) or not word.strip() or re.search(r"[\x00-\x1f<>]", word):
                raise InterlockError(f"the author {word!r} is not allowed; allowed is a line without < and >")
        self.identity = {
            f"GIT_{role}_{part}": value
            for role in ("AUTHOR", "COMMITTER")
            for part, value in (("NAME", name), ("EMAIL", email))
        }
        if not os.path.isdir(path):
            raise GitError(f"there is no folder '{path}'")
        try:
            folders = run_git(["rev-parse", "--absolute-git-dir", "--git-common-dir"], directory=path, seconds=seconds)
        except GitError as error:
            if NO_REPOSITORY in str(error):
                raise GitError(f"'{path}' is not a git repository, nor a folder in one") from None
            raise
        if "\n" in os.path.realpath(path) or folders.text.count("\n") != 1:
            raise GitError(f"the path of the repository {str(path)!r} has a line end, which is not supported")
        own, common = folders.text.split("\n")
        self.folder = os.path.realpath(os.path.join(path, common) if not os.path.isabs(common) else common)
        self.own_folder = os.path.realpath(own)

    @classmethod
    def create(cls, path: str | Path, *, bare: bool = True, branch: str = "main", **options: object) -> "Repository":
        """Makes an empty repository in a folder that is empty or not there."""
        if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
            raise GitError(f"'{path}' is not empty; a repository is made in an empty folder")
        check_branch_name(branch)
        os.makedirs(path, exist_ok=True)
        arguments = ["init", "--quiet", "--template=", f"--initial-branch={branch}", *(["--bare"] if bare else [])]
        run_git(arguments, directory=path)
        return cls(path, **options)  # type: ignore[arg-type]

    def stopped_by(self, stop: Callable[[], bool]) -> "Repository":
        """Returns the same repository, whose calls of git end soon after nobody waits for them any more."""
        repository = copy(self)
        repository.stop = stop
        return repository

    def git(self, *arguments: str, environment: Mapping[str, str] | None = None, **options: object) -> GitResult:
        """Runs git on this repository, with `run_git`'s options, without a working tree unless one is named."""
        variables = {"GIT_DIR": self.folder, **self.identity, **(environment or {})}
        return run_git(
            arguments, directory=self.folder, environment=variables, seconds=self.seconds, stop=self.stop, **options  # type: ignore[arg-type]
        )  # fmt: skip

    # Revisions, trees and differences.

    def resolve(self, revision: str) -> str:
        """Returns the id of the commit that a revision names.

        Raises:
            GitError: there is none.
        """
        if revision in self.known:
            return revision
        commit = self.find(f"{check_revision(revision)}^{{commit}}", revision)
        self.known.add(commit)
        return commit

    def read_tree_id(self, revision: str) -> str:
        """Returns the id of the tree of a revision: equal ids are equal files.

        Raises:
            GitError: there is none.
        """
        return self.find(f"{check_revision(revision)}^{{tree}}", revision)

    def find(self, expression: str, revision: str) -> str:
        result = self.git("rev-parse", "--verify", "--quiet", "--end-of-options", expression, accepted=(0, 1, 128))
        if result.code:
            raise GitError(f"there is no revision '{revision}' in '{self.folder}'")
        return result.text

    def read_file(self, revision: str, path: str) -> bytes:
        """Returns the bytes of a file in a revision.

        Raises:
            GitError: there is none.
        """
        commit = self.resolve(revision)
        result = self.git("cat-file", "blob", f"{commit}:{check_path(path)}", accepted=(0, 128))
        if result.code:
            raise GitError(f"there is no file '{path}' in '{revision}'")
        return result.out

    def list_changes(self, old: str, new: str) -> list[FileChange]:
        """Lists the files that differ between two revisions, renamed ones as such."""
        arguments = ["diff-tree", "-r", "-z", "-M", "--no-commit-id", "--name-status", self.resolve(old)]
        fields = iter(self.git(*arguments, self.resolve(new)).text.split("\0"))
        changes = []
        for status in fields:
            if status:
                old_path = next(fields)
                path = next(fields) if status[0] in "RC" else old_path
                changes.append(FileChange(STATUSES.get(status[0], "modified"), path, old_path))
        return changes

    def diff(self, old: str, new: str) -> bytes:
        """Returns the difference between two revisions as a patch."""
        plain = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary"]
        return self.git(*plain, self.resolve(old), self.resolve(new)).out

    # Branches.

    def move_branch(self, branch: str, new: str, old: str | None) -> None:
        """Moves a branch from one commit to another, if it is still there; `old` None makes a new branch.

        Raises:
            BranchMoved: it was not there any more, or a new one exists already.
        """
        check_branch_name(branch)
        before = NOTHING if old is None else self.resolve(old)
        names = (f"refs/heads/{branch}", self.resolve(new), before)
        result = self.git("update-ref", *names, accepted=(0, 1, 128), finishes=True)
        if result.code:
            raise BranchMoved(f"branch '{branch}' was moved meanwhile: {result.err.strip()}")

    def delete_branch(self, branch: str, old: str) -> None:
        """Deletes a branch that is still at a commit.

        Raises:
            BranchMoved: it is not.
        """
        check_branch_name(branch)
        if where := self.find_checkout(branch):
            raise GitError(f"branch '{branch}' is checked out in '{where.path}'; it is not deleted")
        names = (f"refs/heads/{branch}", self.resolve(old))
        result = self.git("update-ref", "-d", *names, accepted=(0, 1, 128), finishes=True)
        if result.code:
            raise BranchMoved(f"branch '{branch}' was moved meanwhile: {result.err.strip()}")

    # Merging.

    def merge(
        self, branch: str, source: str, message: str, *, before_move: Callable[[], None] = lambda: None
    ) -> MergeOutcome:
        """Merges a revision into a branch without a checkout; where the branch is checked out, its files follow it.

        Parameters:
            before_move: called when all that is left is to move the branch; it raises if that must not be done.

        Raises:
            BranchMoved: somebody else moved the branch meanwhile; nothing was changed.
            LocalChanges: the branch is checked out, and changes that are not committed there would be lost.
            GitError: there is no such branch, or the two have no common history.
        """
        check_branch_name(branch)
        target = self.find(f"refs/heads/{branch}^{{commit}}", branch)
        merged = self.make_merge(target, source, message)
        if merged.commit is None or merged.already:
            return merged
        before_move()
        checkout = self.find_checkout(branch)
        if checkout is None:
            self.move_branch(branch, merged.commit, target)
        else:
            self.follow(checkout, branch, merged.commit, target)
        return merged

    def make_merge(self, target: str, source: str, message: str) -> MergeOutcome:
        """Makes the commit that merges a revision into another one, and moves nothing.

        Raises:
            GitError: the two have no common history.
        """
        if not isinstance(message, str) or not message.strip() or "\0" in message:
            raise InterlockError("a merge needs a message, which is text without NUL")
        ours, theirs = self.resolve(target), self.resolve(source)
        if self.git("merge-base", "--is-ancestor", theirs, ours, accepted=(0, 1)).code == 0:
            return MergeOutcome(ours, self.read_tree_id(ours), already=True)
        merged = self.merge_trees(ours, theirs)
        if merged.conflicts:
            return merged
        made = self.git("commit-tree", merged.tree, "-p", ours, "-p", theirs, "-F", "-", stdin=message.encode()).text
        return MergeOutcome(made, merged.tree)

    def merge_trees(self, ours: str, theirs: str) -> MergeOutcome:
        """Merges two revisions into a tree, and moves nothing; of a conflict, its files are named."""
        arguments = ["merge-tree", "--write-tree", "--no-messages", "--name-only", "-z"]
        result = self.git(
            *arguments, self.resolve(ours), self.resolve(theirs), accepted=(0, 1), check_drivers=True,
            settings={"attr.tree": EMPTY_TREE},
        )  # fmt: skip
        tree, *files = result.text.rstrip("\0").split("\0")
        return MergeOutcome(None, tree, tuple(dict.fromkeys(files)) if result.code else ())

    def follow(self, checkout: Worktree, branch: str, commit: str, old: str) -> None:
        """Moves a branch where it is checked out, with its files.

        Raises:
            BranchMoved: somebody else has moved it meanwhile.
            LocalChanges: changes of files that are not committed would be lost.
        """
        words = ("merge", "--ff-only", "--quiet", commit)
        result = self.git_in(checkout.path, *words, accepted=(0, 1, 128), finishes=True)
        if result.code and "would be overwritten" in result.err:
            files = ", ".join(line.strip() for line in result.err.splitlines() if line.startswith("\t"))
            raise LocalChanges(
                f"branch '{branch}' is checked out in '{checkout.path}' with changes that would be lost ({files}); "
                "commit or undo them"
            )
        if result.code:
            raise BranchMoved(f"branch '{branch}' was moved meanwhile from {old}: {result.err.strip()}")

    # References that are no branches: they keep commits, and people do not see them.

    def keep(self, reference: str, commit: str) -> str:
        """Makes a reference below refs/interlock, and returns where it points: one that is there stays as it is."""
        name = f"refs/interlock/{check_branch_name(reference)}"
        self.git("update-ref", name, self.resolve(commit), NOTHING, accepted=(0, 1, 128), finishes=True)
        return self.find(f"{name}^{{commit}}", name)

    # Worktrees.

    def list_worktrees(self) -> list[Worktree]:
        """Lists the working trees of this repository, the main one first."""
        text = self.git_worktree("list", "--porcelain", "-z").text
        trees = []
        for block in text.split("\0\0"):
            facts = dict(line.partition(" ")[::2] for line in block.split("\0") if line)
            if facts:
                branch = facts.get("branch", "").removeprefix("refs/heads/") or None
                trees.append(Worktree(facts["worktree"], facts.get("HEAD", ""), branch, "bare" in facts))
        return trees

    def git_worktree(self, *words: str, check_drivers: bool = False) -> GitResult:
        """Runs a command of `git worktree`, again for a while if another one is made or removed at the same moment.

        Git reads all of them before it does anything, and fails on one whose files another process has not written yet.
        Whoever removes the last worktree of a folder removes the folder too, perhaps before git has made the next one.

        Raises:
            GitError: git says no.
        """
        for pause in PAUSES:
            try:
                return self.git("worktree", *words, check_drivers=check_drivers)
            except GitError as error:
                if not PASSING.search(str(error)):
                    raise
            time.sleep(pause)
        return self.git("worktree", *words, check_drivers=check_drivers)

    def add_worktree(self, path: str | Path, revision: str, *, branch: str | None = None) -> Worktree:
        """Checks a revision out into a folder that is not there: detached, or as a new branch.

        Raises:
            GitError: the folder is there already, or the branch.
        """
        if os.path.exists(path):
            raise GitError(f"'{path}' is there already; a worktree is made in a new folder")
        how = ["--detach"] if branch is None else ["-b", check_branch_name(branch)]
        commit = self.resolve(revision)
        place = os.path.abspath(path)
        self.git_worktree("add", "--quiet", *how, "--", place, commit, check_drivers=True)
        return Worktree(place, commit, branch)

    def remove_worktree(self, path: str | Path, *, force: bool = False) -> None:
        """Removes a worktree and its files; its branch stays.

        Raises:
            GitError: it is none of this repository, or has changes that are not committed and `force` is not given.
        """
        place = os.path.realpath(path)
        self.find_worktree_folder(place)
        if not force and self.is_dirty(place):
            raise GitError(f"worktree '{path}' has changes that are not committed; force removes it with them")
        self.git_worktree("remove", "--force", "--force", "--", place)

    def remove_half_made(self, folder: str) -> list[str]:
        """Removes worktrees of a folder that git was killed while making; nobody has worked in them.

        Git itself does not remove them: they are locked, and `git fsck` fails until they are gone. Returns their paths.
        """
        removed = []
        for entry in sorted(Path(self.folder, "worktrees").glob("*/gitdir")):
            with suppress(FileNotFoundError):  # it is being removed
                place = os.path.dirname(os.path.realpath(entry.read_text().strip()))
                if os.path.dirname(place) == os.path.realpath(folder) and is_half_made(entry.parent):
                    shutil.rmtree(place, ignore_errors=True)
                    shutil.rmtree(entry.parent)
                    removed.append(place)
        return removed

    def forget_worktree(self, path: str | Path) -> None:
        """Forgets a worktree whose files are gone; others that are gone are left as they are."""
        place = os.path.realpath(path)
        for entry in sorted(Path(self.folder, "worktrees").glob("*/gitdir")):
            with suppress(FileNotFoundError):  # it is being removed
                if os.path.dirname(os.path.realpath(entry.read_text().strip())) == place and not os.path.lexists(place):
                    shutil.rmtree(entry.parent)

    def is_dirty(self, path: str | Path) -> bool:
        """Returns whether a worktree has changes that are not committed, new files among them."""
        return bool(self.git_in(path, "status", "--porcelain", "-z", "--no-renames").out)

    def commit_dirty(
        self, path: str | Path, message: str = "The working tree as it is", *, tracked: bool = False,
        ignores: str = os.devnull,
    ) -> str:  # fmt: skip
        """Makes a commit of a worktree as it is, new files among them, and changes nothing there.

        Neither its branch nor its index moves. Ignored files are left out, and with `tracked` all that git does not
        track. Returns the id of the commit, which is that of the checkout if nothing has changed. Nothing refers to the
        commit: a branch must keep it.

        Parameters:
            ignores: a file that says what is ignored beside what the repository itself ignores.
        """
        if not isinstance(message, str) or not message.strip() or "\0" in message:
            raise InterlockError("a commit needs a message, which is text without NUL")
        own = self.find_worktree_folder(path)
        with tempfile.TemporaryDirectory(prefix="interlock-index-") as folder:
            index = os.path.join(folder, "index")
            if os.path.exists(os.path.join(own, "index")):
                shutil.copy2(os.path.join(own, "index"), index)  # by its time git knows which files to look into
            variables = {"GIT_INDEX_FILE": index}
            self.git_in(
                path, "add", "--update" if tracked else "--all", "--", ".", environment=variables,
                settings={"core.excludesFile": ignores},
            )  # fmt: skip
            tree = self.git_in(path, "write-tree", environment=variables).text
        head = self.git_in(path, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", accepted=(0, 1)).text
        if head and self.read_tree_id(head) == tree:
            return head
        parents = ["-p", head] if head else []
        return self.git("commit-tree", tree, *parents, "-F", "-", stdin=message.encode()).text

    def git_in(
        self, path: str | Path, *arguments: str, environment: Mapping[str, str] | None = None, **options: object
    ) -> GitResult:
        """Runs git in a worktree. Its folder in the repository is named, whatever its `.git` file says."""
        place = os.path.realpath(path)
        variables = {
            "GIT_DIR": self.find_worktree_folder(place), "GIT_WORK_TREE": place, "GIT_COMMON_DIR": self.folder,
            **self.identity, **(environment or {}),
        }  # fmt: skip
        return run_git(
            arguments, directory=place, environment=variables, seconds=self.seconds, stop=self.stop,
            check_drivers=True, **options,  # type: ignore[arg-type]
        )  # fmt: skip

    def find_worktree_folder(self, path: str | Path) -> str:
        """Returns where the repository keeps the index and the HEAD of a worktree.

        Raises:
            GitError: the folder is no worktree of it.
        """
        place = os.path.realpath(path)
        if os.path.isdir(place) and place == os.path.dirname(self.folder) and os.path.basename(self.folder) == ".git":
            return self.folder
        for entry in sorted(Path(self.folder, "worktrees").glob("*/gitdir")):
            with suppress(FileNotFoundError):  # it is being removed
                if os.path.dirname(os.path.realpath(entry.read_text().strip())) == place and os.path.isdir(place):
                    return str(entry.parent)
        raise GitError(f"'{path}' is no worktree of '{self.folder}'")

    def find_checkout(self, branch: str) -> Worktree | None:
        """Returns the worktree in which a branch is checked out."""
        return next((tree for tree in self.list_worktrees() if tree.branch == branch and not tree.bare), None)

    # From elsewhere.

    def fetch(self, url: str, references: Sequence[str], *, protocol: str) -> None:
        """Fetches references from another repository, such as `refs/heads/main:refs/heads/main`.

        Parameters:
            protocol: the one by which it may be fetched: file, https or ssh.
        """
        check_url(url, protocol)
        for reference in references:
            if not WORD.fullmatch(reference) or reference.startswith("-"):
                raise InterlockError(f"the reference {reference!r} is not allowed; allowed is refs/heads/main:refs/…")
        if not references:
            raise InterlockError("what is to be fetched? Name at least one reference, such as refs/heads/main")
        quiet = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"]
        self.git(*quiet, "--end-of-options", url, *references, protocol=protocol)


def check_revision(revision: str) -> str:
    """Returns a revision that git takes for nothing else.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if not isinstance(revision, str) or not WORD.fullmatch(revision) or revision.startswith("-"):
        allowed = "a branch, a tag or the id of a commit, which does not begin with -"
        raise InterlockError(f"the revision {revision!r} is not allowed; allowed is {allowed}")
    if len(revision) > REVISION_MAX:
        raise InterlockError(f"a revision of {len(revision)} characters is not allowed; allowed are {REVISION_MAX}")
    return revision


def check_branch_name(branch: str) -> str:
    """Returns the name of a branch.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if (
        not isinstance(branch, str) or not WORD.fullmatch(branch) or len(branch) > REVISION_MAX
        or branch.startswith(("-", "/")) or branch.endswith(("/", ".", ".lock")) or branch in ("@", "HEAD")
        or re.search(r"\.\.|//|/\.|^\.|\.lock/|@\{|[~^:?*\[\\]", branch)
    ):  # fmt: skip
        allowed = "a name such as main or feature/search, without spaces and ~^:?*[\\"
        raise InterlockError(f"the branch {branch!r} is not allowed; allowed is {allowed}")
    return branch


def check_path(path: str) -> str:
    """Returns the path of a file in a revision.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if not isinstance(path, str) or not path or "\0" in path or path.startswith("/") or ".." in path.split("/"):
        raise InterlockError(f"the path {path!r} is not allowed; allowed is one below the root of the repository")
    return path


def check_url(url: str, protocol: str) -> None:
    """Raises InterlockError for an address that is not of the one allowed protocol, or has a password in it."""
    if protocol not in PROTOCOLS:
        raise InterlockError(f"protocol = '{protocol}' is not allowed; allowed are {', '.join(PROTOCOLS)}")
    if not isinstance(url, str) or not WORD.fullmatch(url) or urlsplit(url).scheme != protocol:
        raise InterlockError(f"the address {url!r} is not allowed; allowed is one that begins with {protocol}://")
    if urlsplit(url).password is not None:
        raise InterlockError("an address with a password is not allowed: everybody on this machine could read it")


def is_half_made(own: Path) -> bool:
    """Returns whether git has begun to make a worktree, of which a repository keeps this folder, and not ended."""
    lock, head = own / "locked", own / "HEAD"
    return (lock.exists() and lock.read_text().startswith("initial")) or not head.read_text().strip("0\n")
