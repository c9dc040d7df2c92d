"""What a repository answers, and how branches are merged without a checkout."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from interlock.git import BranchMoved, FileChange, GitError, LocalChanges, Repository
from interlock.kernel.errors import InterlockError
from tests.git.repositories import commit_files, commit_on, git, write_files


def test_revisions_and_trees(repository: Repository, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    assert repository.resolve("main") == repository.resolve("HEAD") == git(shop, "rev-parse", "HEAD")
    first = repository.read_tree_id("main")
    commit_files(shop, {"a.txt": "other\n"}, "second")
    assert repository.read_tree_id("main") != first == repository.read_tree_id("main~1")
    commit_files(shop, {"a.txt": "one\ntwo\nthree\n"}, "third")
    assert repository.read_tree_id("main") == first


def test_the_bytes_of_a_file(repository: Repository) -> None:
    assert repository.read_file("main", "docs/b.txt") == b"b\n"
    with pytest.raises(GitError, match=r"there is no file 'none\.txt' in 'main'"):
        repository.read_file("main", "none.txt")


def test_a_folder_below_the_root_names_its_repository(repository: Repository, tmp_path: Path) -> None:
    assert Repository(tmp_path / "shop" / "docs").folder == repository.folder


def test_changes_and_the_patch(repository: Repository, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    git(shop, "mv", "docs/b.txt", "docs/with space é.txt")
    (shop / "a.txt").unlink()
    commit_files(shop, {"new\nline.txt": "n\n"}, "second")
    assert sorted(repository.list_changes("main~1", "main"), key=lambda change: change.path) == [
        FileChange("deleted", "a.txt", "a.txt"),
        FileChange("renamed", "docs/with space é.txt", "docs/b.txt"),
        FileChange("added", "new\nline.txt", "new\nline.txt"),
    ]
    assert b"deleted file" in repository.diff("main~1", "main")
    assert repository.diff("main", "main") == b""
    assert repository.list_changes("main", "main") == []


# Merging.


def test_a_merge_makes_a_commit_with_both_parents_and_touches_no_files(repository: Repository, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    theirs = commit_on(shop, "feature", {"c.txt": "c\n"})
    git(shop, "branch", "target")
    ours = commit_on(shop, "target", {"d.txt": "d\n"})
    merged = repository.merge("target", "feature", "merge it\n\nInterlock-Job: job_4r1\n")
    assert merged.commit == git(shop, "rev-parse", "target")
    assert git(shop, "show", "--no-patch", "--format=%P%n%s%n%an", "target").splitlines() == [
        f"{ours} {theirs}",
        "merge it",
        "Interlock",
    ]
    assert git(shop, "show", "--no-patch", "--format=%(trailers)", "target") == "Interlock-Job: job_4r1"
    assert git(shop, "ls-tree", "--name-only", "target").split() == ["a.txt", "c.txt", "d.txt", "docs"]
    assert git(shop, "status", "--porcelain") == ""
    assert not (shop / "c.txt").exists()


def test_the_same_merge_again_changes_nothing(bare: Repository, repository: Repository, tmp_path: Path) -> None:
    commit_on(tmp_path / "shop", "feature", {"c.txt": "c\n"})
    bare.fetch(f"file://{tmp_path}/shop", ["refs/heads/feature:refs/heads/feature"], protocol="file")
    merged = bare.merge("main", "feature", "merge it")
    again = bare.merge("main", "feature", "merge it")
    assert not merged.already
    assert (again.already, again.commit, again.tree) == (True, merged.commit, merged.tree)


def test_a_conflict_names_its_files_and_changes_nothing(repository: Repository, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    commit_on(shop, "feature", {"a.txt": "one\nTHEIRS\nthree\n", "c.txt": "c\n"})
    ours = commit_on(shop, "target", {"a.txt": "one\nOURS\nthree\n"})
    merged = repository.merge("target", "feature", "merge it")
    assert (merged.commit, merged.conflicts) == (None, ("a.txt",))
    assert git(shop, "rev-parse", "target") == ours


def test_a_clean_checkout_of_the_branch_follows_the_merge(repository: Repository, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    commit_on(shop, "feature", {"c.txt": "c\n"})
    merged = repository.merge("main", "feature", "merge it")
    assert git(shop, "rev-parse", "main") == merged.commit
    assert git(shop, "status", "--porcelain") == ""
    assert (shop / "c.txt").read_text() == "c\n"


@pytest.mark.parametrize("file", ["a.txt", "new.txt"])
def test_changes_in_a_checkout_that_a_merge_would_lose_are_left(
    file: str, repository: Repository, tmp_path: Path
) -> None:
    shop = tmp_path / "shop"
    commit_on(shop, "feature", {file: "theirs\n", "c.txt": "c\n"})
    before = git(shop, "rev-parse", "main")
    write_files(shop, {file: "not committed\n"})
    with pytest.raises(LocalChanges, match=rf"is checked out in '.*shop' with changes that would be lost \({file}\)"):
        repository.merge("main", "feature", "merge it")
    assert git(shop, "rev-parse", "main") == before
    assert (shop / file).read_text() == "not committed\n"
    assert not (shop / "c.txt").exists()


def test_changes_in_a_checkout_that_a_merge_does_not_touch_stay(repository: Repository, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    commit_on(shop, "feature", {"c.txt": "c\n"})
    write_files(shop, {"a.txt": "not committed\n", "new.txt": "new\n"})
    merged = repository.merge("main", "feature", "merge it")
    assert git(shop, "rev-parse", "main") == merged.commit
    assert git(shop, "status", "--porcelain").splitlines() == [" M a.txt", "?? new.txt"]
    assert (shop / "c.txt").read_text() == "c\n"


def test_a_merge_that_must_not_be_done_any_more_moves_nothing(repository: Repository, tmp_path: Path) -> None:
    commit_on(tmp_path / "shop", "feature", {"c.txt": "c\n"})
    before = repository.resolve("main")

    def refuse() -> None:
        raise GitError("too late")

    with pytest.raises(GitError, match="too late"):
        repository.merge("main", "feature", "merge it", before_move=refuse)
    assert repository.resolve("main") == before


def test_a_kept_commit_stays_where_it_is(repository: Repository, tmp_path: Path) -> None:
    first = repository.resolve("main")
    second = commit_on(tmp_path / "shop", "feature", {"c.txt": "c\n"})
    assert repository.keep("ws_1/base", first) == first
    assert repository.keep("ws_1/base", second) == first


def test_a_branch_that_was_moved_meanwhile_is_left(bare: Repository) -> None:
    first = bare.resolve("main")
    bare.move_branch("other", "main", None)
    with pytest.raises(BranchMoved, match="branch 'other' was moved meanwhile"):
        bare.move_branch("other", first, None)  # as a new one, though it is there
    tree = bare.read_tree_id("main")
    second = bare.git("commit-tree", tree, "-p", first, "-m", "second").text
    bare.move_branch("other", second, first)
    with pytest.raises(BranchMoved, match="moved meanwhile"):
        bare.move_branch("other", second, first)
    with pytest.raises(BranchMoved, match="moved meanwhile"):
        bare.delete_branch("other", first)
    assert bare.resolve("other") == second
    bare.delete_branch("other", second)
    with pytest.raises(GitError, match="there is no revision 'other'"):
        bare.resolve("other")


def test_merges_of_many_into_one_branch_lose_nothing(bare: Repository, tmp_path: Path) -> None:
    """All begin at once. Whoever was too late tries again, and every file is there at the end."""
    names = [f"f{number}" for number in range(6)]
    for name in names:
        commit_on(tmp_path / "shop", name, {f"{name}.txt": name})
    references = [f"refs/heads/{name}:refs/heads/{name}" for name in names]
    bare.fetch(f"file://{tmp_path}/shop", references, protocol="file")

    def merge(name: str) -> None:
        while True:
            try:
                assert bare.merge("main", name, f"merge {name}").commit
            except BranchMoved:
                continue
            return

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(merge, names))
    listed = bare.git("ls-tree", "--name-only", "main").text.split()
    assert set(listed) >= {f"{name}.txt" for name in names}
    assert bare.git("rev-list", "--count", "--merges", "main").text == "6"


# Bad input.

WRONG_REVISIONS = ["", "-x", "--upload-pack=touch x", "a b", "a\nb", "a\0b", "x" * 2000, 7]


@pytest.mark.parametrize("revision", WRONG_REVISIONS)
def test_a_wrong_revision_is_refused(revision: Any, repository: Repository) -> None:
    for call in (repository.resolve, repository.read_tree_id, lambda it: repository.diff("main", it)):
        with pytest.raises(InterlockError, match="not allowed; allowed"):
            call(revision)


@pytest.mark.parametrize("revision", ["none", "main:a.txt", "0" * 40, "main^{blob}", "@{upstream}"])
def test_a_revision_that_is_not_there_is_named(revision: str, repository: Repository) -> None:
    with pytest.raises(GitError, match="there is no revision '"):
        repository.resolve(revision)


WRONG_BRANCHES = [
    "",
    "-d",
    "a b",
    "a..b",
    "a~1",
    "a:b",
    "HEAD",
    "@",
    "a.lock",
    ".a",
    "a//b",
    "/a",
    "a/",
    "a@{1}",
    "a\\b",
    None,
]


@pytest.mark.parametrize("branch", WRONG_BRANCHES)
def test_a_wrong_branch_is_refused(branch: Any, repository: Repository, tmp_path: Path) -> None:
    for call in (
        lambda: repository.move_branch(branch, "main", None),
        lambda: repository.delete_branch(branch, "main"),
        lambda: repository.merge(branch, "main", "m"),
        lambda: repository.add_worktree(tmp_path / "new", "main", branch=branch or ""),
    ):
        with pytest.raises(InterlockError, match=r"the branch .* is not allowed; allowed is a name such as main"):
            call()
    assert git(tmp_path / "shop", "branch", "--format=%(refname)") == "refs/heads/main"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("message", ["", "  \n", "a\0b", None])
def test_a_merge_without_a_message_is_refused(message: Any, repository: Repository, tmp_path: Path) -> None:
    commit_on(tmp_path / "shop", "feature", {"c.txt": "c\n"})
    before = repository.resolve("main")
    with pytest.raises(InterlockError, match="needs a message"):
        repository.merge("main", "feature", message)
    assert repository.resolve("main") == before


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a\0b", None])
def test_a_wrong_path_is_refused(path: Any, repository: Repository) -> None:
    with pytest.raises(InterlockError, match="allowed is one below the root of the repository"):
        repository.read_file("main", path)


def test_histories_that_have_nothing_in_common_are_not_merged(repository: Repository, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    alien = git(shop, "commit-tree", git(shop, "rev-parse", "main^{tree}"), "-m", "alien")
    with pytest.raises(GitError, match="unrelated histories"):
        repository.merge("main", alien, "merge it")


@pytest.mark.parametrize("name", ["", " ", "a<b", "a\nb", None])
def test_a_wrong_author_is_refused(name: Any, repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(InterlockError, match=r"the author .* is not allowed"):
        Repository(tmp_path / "shop", name=name)


def test_what_is_no_repository_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(GitError, match="not a git repository"):
        Repository(tmp_path / "plain")
    with pytest.raises(GitError, match="there is no folder '"):
        Repository(tmp_path / "nowhere")
    (tmp_path / "plain" / "file").touch()
    with pytest.raises(GitError, match="is not empty; a repository is made in an empty folder"):
        Repository.create(tmp_path / "plain")
