"""How git is run: nothing of the machine, the user or the repository decides what is started."""

import os
import stat
from pathlib import Path

import pytest

from interlock.git import PROTOCOLS, GitError, Repository, command, find_git
from interlock.kernel.errors import InterlockError
from tests.git.repositories import commit_files, commit_on, git, write_files

HOOKS = (
    "reference-transaction", "post-checkout", "post-merge", "pre-commit", "commit-msg", "post-commit", "update",
    "post-index-change", "pre-merge-commit", "prepare-commit-msg", "fsmonitor-watchman", "post-update",
)  # fmt: skip


def make_program(path: Path, sign: Path) -> str:
    """A program that leaves a sign if anybody runs it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{sign}'\ncat\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def do_everything(repository: Repository, tmp_path: Path) -> None:
    """One call of everything that moves, reads or checks out."""
    shop = tmp_path / "shop"
    repository.move_branch("made", "main", None)
    repository.add_worktree(tmp_path / "tree", "main", branch="work")
    write_files(tmp_path / "tree", {"a.txt": "changed\n"})
    commit = repository.commit_dirty(tmp_path / "tree")
    repository.is_dirty(tmp_path / "tree")
    repository.merge("made", commit, "merge it")
    repository.merge("main", commit, "merge it where it is checked out")
    repository.diff("main~1", "main")
    repository.list_changes("main~1", "main")
    repository.delete_branch("made", "made")
    repository.remove_worktree(tmp_path / "tree", force=True)
    repository.fetch(f"file://{shop}", ["refs/heads/main:refs/heads/copy"], protocol="file")


def test_no_hook_is_run(repository: Repository, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    for name in HOOKS:
        make_program(tmp_path / "shop" / ".git" / "hooks" / name, sign)
    git(tmp_path / "shop", "update-ref", "refs/heads/proof", "main")
    assert "reference-transaction" in sign.read_text(), "the hooks of this test would be run by git"
    sign.unlink()
    do_everything(repository, tmp_path)
    assert not sign.exists(), sign.read_text()


def test_no_program_of_the_configuration_is_run(repository: Repository, tmp_path: Path) -> None:
    shop, sign = tmp_path / "shop", tmp_path / "sign"
    program = make_program(tmp_path / "program", sign)
    commit_files(shop, {".gitattributes": "*.txt filter=evil diff=evil merge=evil\n"}, "attributes")
    names = [
        "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.command", "diff.evil.textconv",
        "merge.evil.driver", "core.fsmonitor", "diff.external", "core.pager", "core.editor", "gpg.program",
        "core.sshCommand", "credential.helper", "core.alternateRefsCommand", "core.askPass",
    ]  # fmt: skip
    for name in names:
        git(shop, "config", name, program)
    git(shop, "config", "filter.evil.required", "true")
    git(shop, "config", "commit.gpgSign", "true")
    do_everything(repository, tmp_path)
    assert not sign.exists(), sign.read_text()


def test_a_file_is_merged_as_text_though_it_names_a_driver(repository: Repository, tmp_path: Path) -> None:
    shop, sign = tmp_path / "shop", tmp_path / "sign"
    commit_files(shop, {".gitattributes": "a.txt merge=evil\n"}, "attributes")
    git(shop, "config", "merge.evil.driver", make_program(tmp_path / "program", sign))
    commit_on(shop, "theirs", {"a.txt": "ONE\ntwo\nthree\n"})
    commit_on(shop, "ours", {"a.txt": "one\ntwo\nTHREE\n"})
    assert repository.merge("ours", "theirs", "merge it").conflicts == ()
    assert repository.read_file("ours", "a.txt") == b"ONE\ntwo\nTHREE\n"
    assert not sign.exists()


def test_a_driver_that_the_repository_names_beside_its_files_is_a_conflict(
    repository: Repository, tmp_path: Path
) -> None:
    shop, sign = tmp_path / "shop", tmp_path / "sign"
    write_files(shop / ".git" / "info", {"attributes": "a.txt merge=evil\n"})
    git(shop, "config", "merge.evil.driver", make_program(tmp_path / "program", sign))
    commit_on(shop, "theirs", {"a.txt": "ONE\ntwo\nthree\n"})
    commit_on(shop, "ours", {"a.txt": "one\ntwo\nTHREE\n"})
    assert repository.merge("ours", "theirs", "merge it").conflicts == ("a.txt",)
    assert not sign.exists()


def test_nothing_of_the_environment_the_user_and_the_system_is_read(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign, home = tmp_path / "sign", tmp_path / "home"
    program = make_program(tmp_path / "program", sign)
    make_program(tmp_path / "hooks" / "reference-transaction", sign)
    write_files(home, {".gitconfig": f"[core]\n\thooksPath = {tmp_path}/hooks\n[user]\n\tname = Mallory\n"})
    write_files(home, {".config/git/config": "[broken"})
    for name, value in {
        "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": program,
        "GIT_DIR": "/nowhere", "GIT_WORK_TREE": "/nowhere", "GIT_INDEX_FILE": "/nowhere", "GIT_EXTERNAL_DIFF": program,
        "GIT_AUTHOR_NAME": "Mallory", "GIT_TRACE": str(tmp_path / "trace"), "GIT_EXEC_PATH": str(tmp_path),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    do_everything(repository, tmp_path)
    monkeypatch.undo()
    assert not sign.exists()
    assert not (tmp_path / "trace").exists()
    assert git(tmp_path / "shop", "log", "-1", "--format=%an %ae", "main") == "Interlock interlock@localhost"


# One protocol.


def test_only_the_named_protocol_is_allowed(bare: Repository, tmp_path: Path) -> None:
    address = f"file://{tmp_path}/shop"
    with pytest.raises(GitError, match="transport 'file' not allowed"):
        bare.git("fetch", address, "main")  # as if somebody forgot to name it
    with pytest.raises(GitError, match="transport 'file' not allowed"):
        bare.git("fetch", address, "main", protocol="https")


def test_a_repository_that_redirects_addresses_fetches_nothing(bare: Repository, tmp_path: Path) -> None:
    git(tmp_path / "bare.git", "config", f"url.file://{tmp_path}/other.insteadOf", f"file://{tmp_path}/shop")
    with pytest.raises(GitError, match="redirects what is fetched: remove url"):
        bare.fetch(f"file://{tmp_path}/shop", ["refs/heads/main:refs/heads/x"], protocol="file")


@pytest.mark.parametrize(
    ("address", "protocol", "why"),
    [
        ("file:///x", "https", "begins with https://"),
        ("ext::sh -c touch% x", "file", "begins with file://"),
        ("/plain/path", "file", "begins with file://"),
        ("--upload-pack=touch x", "file", "begins with file://"),
        ("-x", "https", "begins with https://"),
        ("git@example.org:shop", "ssh", "begins with ssh://"),
        ("http://example.org/shop", "https", "begins with https://"),
        ("https://ann:secret@example.org/shop", "https", "an address with a password is not allowed"),
        ("https://example.org/a b", "https", "begins with https://"),
        ("file:///x", "ext", "allowed are file, https, ssh"),
        ("file:///x", "", "allowed are file, https, ssh"),
    ],
)
def test_a_wrong_address_is_refused(address: str, protocol: str, why: str, bare: Repository) -> None:
    with pytest.raises(InterlockError, match=why) as refusal:
        bare.fetch(address, ["refs/heads/main"], protocol=protocol)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("references", [[], [""], ["-x"], ["a b"], ["--upload-pack=x"]])
def test_wrong_references_are_refused(references: list[str], bare: Repository) -> None:
    with pytest.raises(InterlockError, match=r"reference"):
        bare.fetch("file:///x", references, protocol="file")


def test_a_server_that_wants_a_password_is_asked_in_vain_and_nobody_else_is(bare: Repository) -> None:
    """The port answers nobody; git fails by itself, and does not wait for a person."""
    with pytest.raises(GitError, match="git fetch"):
        bare.fetch("https://127.0.0.1:9/shop", ["refs/heads/main"], protocol="https")


# Time, and git itself.


def test_git_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "bin" / "git"
    write_files(tmp_path / "bin", {"git": "#!/bin/sh\necho $$ > '" + str(tmp_path / "it.pid") + "'\nexec sleep 1000\n"})
    slow.chmod(0o755)
    monkeypatch.setattr(command, "find_git", lambda: str(slow))
    with pytest.raises(GitError, match=r"git status: it took longer than 0\.5 s and was ended"):
        command.run_git(["status"], directory=tmp_path, seconds=0.5)
    assert not os.path.exists(f"/proc/{(tmp_path / 'it.pid').read_text().strip()}")


@pytest.mark.parametrize("words", ["rev-parse", "status"], ids=["reads", "supervised"])
@pytest.mark.parametrize("text", ["", "echo begun\n"], ids=["silent", "begun"])
def test_git_ends_when_nobody_waits_for_it_any_more(
    words: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "it.pid"
    write_files(tmp_path / "bin", {"git": f"#!/bin/sh\n{text}echo $$ > '{pid}'\nexec sleep 1000\n"})
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setattr(command, "find_git", lambda: str(tmp_path / "bin" / "git"))
    with pytest.raises(command.GitStopped, match=f"git {words}: it was asked to stop"):
        command.run_git([words], directory=tmp_path, seconds=30, stop=lambda: pid.exists() and bool(pid.read_text()))
    assert not os.path.exists(f"/proc/{pid.read_text().strip()}")


def test_git_that_writes_too_much_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path / "bin", {"git": "#!/bin/sh\nexec yes\n"})
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setattr(command, "find_git", lambda: str(tmp_path / "bin" / "git"))
    monkeypatch.setattr(command, "OUTPUT_MAX", 1 << 20)
    with pytest.raises(GitError, match="git log: it wrote more than 1 MiB and was ended"):
        command.run_git(["log"], directory=tmp_path)


@pytest.mark.parametrize(
    ("said", "why"),
    [("git version 2.30.1", "git version 2.30.1 is too old; at least version 2.38"), ("", "this git is too old")],
)
def test_a_git_that_is_too_old_is_refused(said: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path / "bin", {"git": f"#!/bin/sh\necho {said}\n"})
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    find_git.cache_clear()
    try:
        with pytest.raises(GitError, match=why):
            find_git()
    finally:
        monkeypatch.undo()
        find_git.cache_clear()


def test_a_machine_without_git_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    find_git.cache_clear()
    try:
        with pytest.raises(GitError, match=r"git is not installed; install it, at least version 2\.38"):
            find_git()
    finally:
        find_git.cache_clear()


def test_errors_hide_credentials() -> None:
    text = "fatal: unable to access 'https://ann:secret@example.org/shop/': no"
    assert command.hide_credentials(text) == "fatal: unable to access 'https://…@example.org/shop/': no"
    assert PROTOCOLS == ("file", "https", "ssh")
