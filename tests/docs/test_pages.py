"""Every file and every command line of the README, the tutorial and the pages about workflows and testing works as it is written."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from interlock.store.postgres import PostgresConnection
from tests.cli.inside import inside
from tests.conftest import ROOT
from tests.docs import fresh
from tests.docs.pages import PATIENCE, Block, Reader, blocks, pattern
from tests.store.databases import swap
from tests.validate_log.logs import DRAIN, REGISTER, line, text

PLACE = "postgresql://shop@localhost/shop"


@pytest.fixture
def shop(server: str) -> Iterator[str]:
    """An empty database, as somebody makes who wants to try."""
    admin = PostgresConnection(server)
    admin.script("CREATE DATABASE shop")
    yield swap(server, "shop")
    admin.script("DROP DATABASE shop WITH (FORCE)")
    admin.close()


def follow(
    page: str,
    folder: Path,
    own: dict[str, str],
    skip: tuple[str, ...] = (),
    home: Path | None = None,
    env: dict[str, str] | None = None,
) -> None:
    """A reader does what the page says, with the environment of the tests or with one of its own."""
    (folder / ".venv").symlink_to(home or Path(sys.executable).parent.parent)
    page_text = (ROOT / page).read_text(encoding="utf-8")
    assert len(re.findall(r"^\s*```", page_text, re.MULTILINE)) == 2 * len(blocks(page_text)), "a block has no language"
    reader = Reader(folder, own, env)
    try:
        for exported in re.findall(r"`(export [^`]+)`", page_text):  # in a sentence, before the first block
            reader.export(exported.replace("/path/to/interlock", str(folder)))
        for block in blocks(page_text):
            if block.language not in skip:
                reader.follow(block)
    finally:
        reader.end()


def test_the_tutorial(tmp_path: Path, shop: str) -> None:
    follow("docs/tutorial.md", tmp_path, {PLACE: shop}, home=fresh.make(tmp_path / "home"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_the_page_about_the_server(tmp_path: Path) -> None:
    """The reader has a certificate, and other ports than the page: those may be taken."""
    port, secure = free_port(), free_port()
    certificate = trustme.CA().issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    (tmp_path / "key.pem").chmod(0o600)
    own = {"--host 0.0.0.0 --port 8443": f"--host 127.0.0.1 --port {secure}", "8443": str(secure), "8000": str(port)}
    env = {"INTERLOCK_UP_PORT": str(port), "INTERLOCK_SERVE_PORT": str(port)}
    home = fresh.make(tmp_path / "home")
    follow("docs/server.md", tmp_path, own, skip=("json", "promql"), home=home, env=env)


def test_the_readers_environment_has_what_make_run_installs_and_no_more(tmp_path: Path) -> None:
    home = fresh.make(tmp_path / "home")

    def can(module: str) -> bool:
        return subprocess.run([home / "bin" / "python", "-c", f"import {module}"], capture_output=True).returncode == 0

    assert [can(one) for one in ("litestar", "interlock", "pytest", "psycopg")] == [True, True, False, False]
    subprocess.run([home / "bin" / "python", "-m", "pip", "install", "--quiet", "pytest"], check=True)
    assert (can("pytest"), can("psycopg")) == (True, False)


def test_the_page_about_events(tmp_path: Path) -> None:
    port = free_port()
    follow("docs/events.md", tmp_path, {"8000": str(port)}, env={"INTERLOCK_UP_PORT": str(port)})


def test_the_page_about_recovery(tmp_path: Path) -> None:
    follow("docs/recovery.md", tmp_path, {})


def test_the_page_about_testing(tmp_path: Path) -> None:
    follow("docs/testing.md", tmp_path, {})


def test_the_page_about_the_inbox(tmp_path: Path) -> None:
    follow("docs/inbox.md", tmp_path, {})


def test_the_page_about_blobs_and_logs(tmp_path: Path) -> None:
    follow("docs/blobs-and-logs.md", tmp_path, {})


def test_the_page_about_shell_commands(tmp_path: Path) -> None:
    assert shutil.which("git"), "git is not installed, so this page cannot be followed; install git 2.38 or newer"
    follow("docs/shell.md", tmp_path, {})


def test_the_page_about_repositories(tmp_path: Path) -> None:
    assert shutil.which("git"), "git is not installed, so this page cannot be followed; install git 2.38 or newer"
    follow("docs/repositories.md", tmp_path, {})


def test_the_page_about_ci(tmp_path: Path) -> None:
    follow("docs/ci/README.md", tmp_path, {})


def test_the_page_about_tasks(tmp_path: Path) -> None:
    follow("docs/tasks.md", tmp_path, {})


def test_the_page_about_workflows(tmp_path: Path) -> None:
    follow("docs/workflows.md", tmp_path, {})


def test_the_page_about_workstreams(tmp_path: Path) -> None:
    assert shutil.which("git"), "git is not installed, so this page cannot be followed; install git 2.38 or newer"
    port = free_port()
    follow("docs/workstreams.md", tmp_path, {"8000": str(port)})


def test_the_page_about_graphs(tmp_path: Path) -> None:
    follow("docs/graphs.md", tmp_path, {})


def test_the_page_about_scheduling(tmp_path: Path) -> None:
    follow("docs/scheduling.md", tmp_path, {})


@pytest.mark.req("R3-57")
@pytest.mark.parametrize("page", ["scheduling.md", "architecture.md", "recovery.md"])
def test_the_pages_that_document_003_points_to_are_linked(page: str) -> None:
    assert (ROOT / "docs" / page).read_text(encoding="utf-8").startswith("# ")
    assert f"](docs/{page})" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_about_waiting(tmp_path: Path) -> None:
    follow("docs/waiting.md", tmp_path, {})


def test_the_page_about_agents(tmp_path: Path) -> None:
    follow("docs/agents.md", tmp_path, {})


def test_the_page_about_checks(tmp_path: Path) -> None:
    follow("docs/checks.md", tmp_path, {})


def test_the_readme(tmp_path: Path) -> None:
    follow("README.md", tmp_path, {}, skip=("sh", "text"))


def test_the_two_commands_of_the_readme() -> None:
    """`make run` runs until it is stopped. `make test` is what runs this, so it is only looked at."""
    (block,) = [one for one in blocks((ROOT / "README.md").read_text(encoding="utf-8")) if one.language == "sh"]
    assert [line.split()[:2] for line in block.text.splitlines()] == [["make", "run"], ["make", "test"]]
    looked = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert looked.returncode == 0
    assert "pytest" in looked.stdout


def test_the_commands_of_the_readmes_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that run on, or take long, have tests of their own: here they must only be known."""
    monkeypatch.chdir(tmp_path)
    lasting = ("up", "demo", "worker", "lifecycle check", "agent submit", "ci run")
    shutil.copy(ROOT / "interlock" / "lifecycles" / "job.toml", tmp_path / "job.toml")
    (tmp_path / "log.jsonl").write_text(text([line(1, "w1", REGISTER), line(2, "w1", DRAIN)]))
    (tmp_path / "site.toml").write_text('name = "site"\n\n[tasks.build]\nrun = "make"\n')
    files = {"validate-log": "log.jsonl", "workstream": "site.toml"}
    listed = re.findall(r"^\| `interlock ([^`]+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(listed) > 10
    ask = inside("sqlite:///interlock.db")
    ask("db", "upgrade")
    for said in listed:
        file = next((name for word, name in files.items() if said.startswith(word)), "job.toml")
        words = said.replace("FILE", file)
        if said.startswith(lasting):
            words = words.replace("mail:app", "run") + " --help"
        assert ask(*words.split()).code == 0, said


def test_make_run_starts_and_stops(tmp_path: Path) -> None:
    env = {**os.environ, "INTERLOCK_DB": f"sqlite:///{tmp_path}/run.db"}
    env.pop("MAKEFLAGS", None)
    log = tmp_path / "log"
    with log.open("w") as out:
        run = subprocess.Popen(
            ["make", "run"], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    end = time.monotonic() + PATIENCE
    try:
        while "Ctrl-C stops it" not in log.read_text():
            assert time.monotonic() < end, log.read_text()
            assert run.poll() is None, log.read_text()
            time.sleep(0.05)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGINT)
            run.wait(PATIENCE)
    assert "Tasks: " in log.read_text()
    (told,) = [one for one in blocks((ROOT / "README.md").read_text(encoding="utf-8")) if one.language == "text"]
    port = re.findall(r"http://127.0.0.1:(\d+)/", log.read_text())[0]  # that of the page may be taken
    assert re.search(pattern(told.text.replace("8000", port)), log.read_text()), log.read_text()


def test_a_page_that_says_something_else_is_noticed(tmp_path: Path) -> None:
    reader = Reader(tmp_path, {})
    reader.follow(Block("console", "", "$ echo one\none\n$ word=two\n$ echo $word\ntwo\n"))
    with pytest.raises(AssertionError, match="the page says"):
        reader.follow(Block("console", "", "$ echo one\ntwo\n"))
    with pytest.raises(AssertionError, match="where this belongs"):
        reader.follow(Block("python", "", "print(1)\n"))
    assert re.fullmatch(pattern("a  job_4r1 at …\n2030-01-01T00:00:00Z"), "a job_z at\nnight 2031-12-01T10:00:00.123Z")
