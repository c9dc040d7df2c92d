"""Worktrees, and a dirty tree as a commit."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.git import GitError, Repository
from interlock.git.repository import PAUSES
from interlock.kernel.errors import InterlockError
from tests.git.repositories import commit_files, git, write_files


def test_a_worktree_is_made_listed_and_removed(bare: Repository, tmp_path: Path) -> None:
    place = tmp_path / "tree"
    tree = bare.add_worktree(place, "main", branch="work")
    assert (place / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert tree in bare.list_worktrees()
    assert (tree.branch, tree.commit) == ("work", bare.resolve("main"))
    bare.remove_worktree(place)
    assert not place.exists()
    assert [tree.bare for tree in bare.list_worktrees()] == [True]
    assert bare.resolve("work") == bare.resolve("main")


def test_a_worktree_that_another_process_is_making_is_waited_for(
    bare: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git itself fails on one whose files are not all there yet, and an attempt of a task would be spent for it."""
    bare.add_worktree(tmp_path / "tree", "main")
    file = Path(bare.folder, "worktrees/tree/commondir")
    whole, pauses = file.read_text(), list[float]()
    for use in (
        bare.list_worktrees,
        lambda: bare.add_worktree(tmp_path / "other", "main"),
        lambda: bare.remove_worktree(tmp_path / "other"),
    ):
        file.write_text("")
        clock = SimpleNamespace(sleep=lambda pause: (pauses.append(pause), file.write_text(whole)))
        monkeypatch.setattr("interlock.git.repository.time", clock)
        use()
        assert pauses.pop() == 0.01
    monkeypatch.setattr("interlock.git.repository.time", SimpleNamespace(sleep=pauses.append))
    file.write_text("")
    with pytest.raises(GitError, match="commondir"):
        bare.list_worktrees()
    assert len(pauses) == len(PAUSES)


def test_a_folder_that_goes_while_a_worktree_is_made_in_it_is_made_again(
    bare: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever removes the last worktree of a folder removes the folder; the next task of its workstream may begin there."""
    folder = tmp_path / "workstream_1"
    folder.write_text("no folder at this moment")
    pauses = list[float]()
    monkeypatch.setattr(
        "interlock.git.repository.time",
        SimpleNamespace(sleep=lambda pause: (pauses.append(pause), folder.unlink())),
    )
    tree = bare.add_worktree(folder / "task_1-1", "main")
    assert (pauses, Path(tree.path, "a.txt").exists()) == ([0.01], True)


def test_a_detached_worktree_has_no_branch(bare: Repository, tmp_path: Path) -> None:
    bare.add_worktree(tmp_path / "tree", "main")
    (tree,) = [tree for tree in bare.list_worktrees() if not tree.bare]
    assert tree.branch is None


def test_a_dirty_worktree_is_removed_only_by_force(bare: Repository, tmp_path: Path) -> None:
    place = tmp_path / "tree"
    bare.add_worktree(place, "main")
    write_files(place, {"new.txt": "new\n"})
    assert bare.is_dirty(place)
    with pytest.raises(GitError, match="has changes that are not committed; force removes it with them"):
        bare.remove_worktree(place)
    assert (place / "new.txt").exists()
    bare.remove_worktree(place, force=True)
    assert not place.exists()


@pytest.mark.parametrize("head", ["", "0" * 40 + "\n", None])
def test_a_worktree_that_git_was_killed_in_is_removed(bare: Repository, tmp_path: Path, head: str | None) -> None:
    for name in ("whole", "half"):
        bare.add_worktree(tmp_path / "trees" / name, "main")
    own = Path(bare.folder, "worktrees", "half")
    if head is None:  # it is locked until its files are there
        (own / "locked").write_text("initializing")
        (tmp_path / "trees" / "half" / "a.txt").unlink()
    else:
        (own / "HEAD").write_text(head)
        with pytest.raises(AssertionError, match="worktrees/half/HEAD"):
            git(Path(bare.folder), "fsck")
    assert bare.remove_half_made(str(tmp_path / "others")) == []
    assert bare.remove_half_made(str(tmp_path / "trees")) == [str(tmp_path / "trees" / "half")]
    git(Path(bare.folder), "fsck")
    assert [tree.path for tree in bare.list_worktrees() if not tree.bare] == [str(tmp_path / "trees" / "whole")]


def test_a_folder_or_branch_that_is_there_is_refused(bare: Repository, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(GitError, match="is there already; a worktree is made in a new folder"):
        bare.add_worktree(tmp_path / "taken", "main")
    with pytest.raises(GitError, match="'main' already exists"):
        bare.add_worktree(tmp_path / "tree", "main", branch="main")
    bare.add_worktree(tmp_path / "other", "main", branch="work")
    with pytest.raises(GitError, match="is checked out in"):
        bare.delete_branch("work", "main")


def test_what_is_no_worktree_of_it_is_refused_and_left(bare: Repository, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    for call in (bare.remove_worktree, bare.is_dirty, bare.commit_dirty):
        with pytest.raises(GitError, match="is no worktree of '"):
            call(tmp_path / "plain")
        with pytest.raises(GitError, match="is no worktree of '"):
            call(tmp_path / "shop")  # it is one of another repository
    assert (tmp_path / "plain").exists()
    assert (tmp_path / "shop" / "a.txt").exists()


# A dirty tree.


def test_a_dirty_tree_becomes_a_commit_and_stays_dirty(repository: Repository, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    commit_files(shop, {".gitignore": "*.log\n", "gone.txt": "x"}, "second")
    write_files(shop, {"a.txt": "changed\n", "new/file.txt": "new\n", "ignored.log": "x", "staged.txt": "s\n"})
    (shop / "gone.txt").unlink()
    git(shop, "add", "staged.txt")
    head, status = git(shop, "rev-parse", "HEAD"), git(shop, "status", "--porcelain")
    index = (shop / ".git" / "index").read_bytes()

    commit = repository.commit_dirty(shop, "as it is")

    assert git(shop, "rev-parse", f"{commit}^") == head
    assert git(shop, "ls-tree", "-r", "--name-only", commit).splitlines() == [
        ".gitignore", "a.txt", "docs/b.txt", "new/file.txt", "staged.txt",
    ]  # fmt: skip
    assert repository.read_file(commit, "a.txt") == b"changed\n"
    assert (git(shop, "rev-parse", "HEAD"), git(shop, "status", "--porcelain")) == (head, status)
    assert (shop / ".git" / "index").read_bytes() == index


def test_a_clean_tree_is_the_commit_that_is_checked_out(repository: Repository, tmp_path: Path) -> None:
    assert repository.commit_dirty(tmp_path / "shop") == repository.resolve("main")


def test_equal_dirty_trees_have_equal_ids(bare: Repository, tmp_path: Path) -> None:
    ids = set()
    for name in ("one", "two"):
        bare.add_worktree(tmp_path / name, "main")
        write_files(tmp_path / name, {"a.txt": "changed\n"})
        ids.add(bare.read_tree_id(bare.commit_dirty(tmp_path / name)))
    assert len(ids) == 1


def test_a_repository_without_a_commit_has_a_dirty_tree_too(tmp_path: Path) -> None:
    empty = Repository.create(tmp_path / "empty", bare=False)
    write_files(tmp_path / "empty", {"a.txt": "first\n"})
    commit = empty.commit_dirty(tmp_path / "empty")
    assert empty.read_file(commit, "a.txt") == b"first\n"
    assert git(tmp_path / "empty", "rev-list", "--count", commit) == "1"


def test_a_worktree_whose_git_file_was_replaced_is_still_of_its_repository(bare: Repository, tmp_path: Path) -> None:
    """Whoever may write to a worktree cannot lead git elsewhere."""
    place = tmp_path / "tree"
    bare.add_worktree(place, "main")
    evil = Repository.create(tmp_path / "evil.git")
    (place / ".git").write_text(f"gitdir: {evil.folder}\n")
    write_files(place, {"a.txt": "changed\n"})
    commit = bare.commit_dirty(place)
    assert bare.resolve(commit) == commit
    assert list(Path(evil.folder, "objects").glob("??")) == []


@pytest.mark.parametrize("message", ["", "a\0b", None])
def test_a_commit_without_a_message_is_refused(message: Any, repository: Repository, tmp_path: Path) -> None:
    write_files(tmp_path / "shop", {"a.txt": "changed\n"})
    with pytest.raises(InterlockError, match="a commit needs a message"):
        repository.commit_dirty(tmp_path / "shop", message)


def test_no_index_is_left_behind(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "own"))
    write_files(tmp_path / "shop", {"a.txt": "changed\n"})
    repository.commit_dirty(tmp_path / "shop")
    assert os.listdir(tmp_path / "own") == []
