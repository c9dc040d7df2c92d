"""What goes wrong around a local run: a disk that is full, a runner that is frozen, secrets in odd places, a sandbox."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from interlock.kernel.commands import Claim, LeaseRef, Register, Start, Tick
from interlock.plugins.ci.queries import list_ci_attempts, list_ci_jobs, list_ci_runs
from interlock.process import choose_sandbox
from interlock.process.sandbox import NO_SANDBOX, NOBODY
from tests.ci.repositories import check_record, ci, classes, make_repository, processes_of, states, wait_until
from tests.conftest import COMMAND
from tests.git.repositories import git, write_files


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tmp", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


# A disk that is full.

ON_A_SMALL_DISK = """
set -e
mount -t tmpfs -o size=6m disk "$1"
cp -r "$2" "$1/shop"
dd if=/dev/zero of="$1/fill" bs=1k count="$3" 2>/dev/null || true
exec "$4" ci run -C "$1/shop"
"""


def run_on_a_small_disk(
    tmp_path: Path, place: Path, filled: int, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs the jobs of a copy of a repository on a disk of 6 MiB, of which so many KiB are taken."""
    disk = tmp_path / "disk"
    disk.mkdir(exist_ok=True)
    own = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*own, "mount", "-t", "tmpfs", "x", str(disk)], capture_output=True, check=False).returncode:
        pytest.skip("a disk of one's own cannot be mounted on this machine")
    words = [*own, "sh", "-c", ON_A_SMALL_DISK, "sh", str(disk), str(place), str(filled), str(COMMAND)]
    environment = {**os.environ, **environment}
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=300)


def test_a_disk_that_is_full_before_a_run_is_a_sentence(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "shop", "jobs: {a: {steps: ['true']}}")
    for filled in (9_999, 5_000):
        done = run_on_a_small_disk(tmp_path, place, filled)
        assert "Traceback" not in done.stderr
        assert (done.returncode, done.stderr.startswith("interlock: ")) == (2, True), done.stderr


def test_a_disk_that_becomes_full_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    config = "jobs: {a: {steps: ['cat /dev/zero > $DISK/fill || true; echo filled']}}"
    place = make_repository(tmp_path / "shop", config.replace("$DISK", str(tmp_path / "disk")))
    done = run_on_a_small_disk(tmp_path, place, 10)
    assert "Traceback" not in done.stderr
    assert (done.returncode, "cannot be written" in done.stderr) == (2, True), done.stderr
    assert "interlock: the run has ended, because its database in " in done.stderr


# A runner that is frozen.

WAITS = """
jobs:
  a: {steps: ["echo $$ >> $HOME/began; while [ ! -e $HOME/go ]; do sleep 0.05; done; echo done"], cancel_within: 2s}
"""
HURRY = 10  # leases are over that much sooner
IN_A_HURRY = f"""
import functools, interlock
interlock.open = functools.partial(interlock.open, hurry={HURRY})
from interlock.cli import main
main()
"""


@pytest.mark.req("R4-31", "R4-66")
def test_a_runner_that_was_frozen_for_longer_than_its_lease_decides_nothing(tmp_path: Path) -> None:
    place, home = make_repository(tmp_path / "shop", WAITS), tmp_path / "home"
    words = [sys.executable, "-c", IN_A_HURRY, "ci", "run", "--json", "-C", str(place)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_until((home / "began").exists)
            process.send_signal(signal.SIGSTOP)
            with interlock.open(f"sqlite:///{place}/.git/interlock/ci.db", hurry=HURRY) as app:
                (run,) = app.read(list_ci_runs)
                (job,) = app.read(list_ci_jobs, run.unit)

                def is_lost() -> bool:
                    app.send(Tick())
                    return app.read(list_ci_attempts, job.unit)[0].state == "STALE"

                wait_until(is_lost)
            (home / "go").touch()  # the frozen runner's step ends well, and nobody asks
            process.send_signal(signal.SIGCONT)
            out, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    shown = json.loads(out)
    attempts = [(each["state"], each["class"]) for each in shown["jobs"][0]["attempts"]]
    assert (process.returncode, attempts) == (0, [("STALE", "runner_lost"), ("SUCCEEDED", "success")])
    assert len((home / "began").read_text().split()) == 2
    wait_until(lambda: processes_of(shown["commit"]) == [])
    check_record(place)


TWO = """
jobs:
  a: {steps: ["echo $$ >> $HOME/began; while [ ! -e $HOME/go ]; do sleep 0.05; done"]}
  b: {steps: [echo b]}
"""


@pytest.mark.req("R4-25", "R4-31")
def test_a_runner_that_takes_an_attempt_and_says_nothing_loses_it_with_its_window(tmp_path: Path) -> None:
    """Another process claims an attempt and does not acknowledge it: it is given to the runner, and what it says is late."""
    place, home = make_repository(tmp_path / "shop", TWO), tmp_path / "home"
    words = [sys.executable, "-c", IN_A_HURRY, "ci", "run", "-j", "1", "--json", "-C", str(place)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_until((home / "began").exists)
            with interlock.open(f"sqlite:///{place}/.git/interlock/ci.db", hurry=HURRY) as app:
                (run,) = app.read(list_ci_runs)
                silent = app.send(Register(name="silent", incarnation="1", capacity=1))
                claim = Claim(worker=silent, key="c", nonce="0" * 32, limit=1, queues=(run.queue,))
                (grant,) = app.send(claim)
                (job,) = (job for job in app.read(list_ci_jobs, run.unit) if job.name == "b")

                def is_lost() -> bool:
                    app.send(Tick())
                    return app.read(list_ci_attempts, job.unit)[0].state == "STALE"

                wait_until(is_lost)
                held = LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)
                (late,) = app.send(Start(held=(held,)))
                assert (late.accepted, late.why) == (False, "LEASE_REVOKED")
            (home / "go").touch()
            out, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    attempts = [(each["state"], each["class"]) for each in json.loads(out)["jobs"][1]["attempts"]]
    assert (process.returncode, attempts) == (0, [("STALE", "runner_lost"), ("SUCCEEDED", "success")])
    check_record(place)


# Secrets, and files that make no artifact.


def test_secrets_are_masked_wherever_a_job_can_put_them(tmp_path: Path) -> None:
    config = """
jobs:
  report:
    secrets: [KEY]
    steps: ['echo "<t><testcase name=\\"a $KEY\\"><failure message=\\"$KEY\\">no</failure></testcase></t>" > r.xml', "exit 1"]
    reports: {junit: r.xml}
  bad: {secrets: [KEY], steps: ["echo x > $KEY.xml"], reports: {junit: "*.xml"}}
  link: {secrets: [KEY], steps: ["ln -s / $KEY"], artifacts: [{name: out, paths: ["*"]}]}
"""
    secret = "hunter2-and-more"
    place = make_repository(tmp_path / "shop", config)
    say = ci(place, KEY=secret)
    done = say("run", "--json")
    assert classes(done) == {"report": ["step"], "bad": ["success"], "link": ["step"]}  # no machine is to blame
    told = "".join(say(*words).out for words in (("tests",), ("log",), ("show",), ("why", "link"), ("show", "--json")))
    assert told.count("***") >= 4
    assert secret not in told
    kept = b"".join(path.read_bytes() for path in (place / ".git/interlock").glob("ci.db*") if path.is_file())
    assert secret.encode() not in kept


def test_a_sandbox_has_no_network_no_home_and_no_repository(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    if os.geteuid() == 0:  # who becomes somebody else in a sandbox
        os.chown(own, NOBODY, NOBODY)
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_uid == 0:
                folder.chmod(folder.stat().st_mode | 0o001)
    if not (choice := choose_sandbox("auto", str(own))).program:
        pytest.skip(f"nothing is shown about bubblewrap: {choice.why}")
    config = """
jobs:
  a:
    steps:
      - test "$(readlink /proc/self/ns/net)" != "$(cat network)"
      - test ! -e $SHOP
      - "! git log"
      - test "$HOME" = "$PWD"
      - "setsid sleep 600 & echo made > out"
    artifacts: [{name: out, paths: [out]}]
    after: [cat out]
  b: {steps: ['test "$(readlink /proc/self/ns/net)" = "$(cat network)"'], network: true}
  c: {steps: ["trap '' TERM; sleep 600"], timeout: 2s, cancel_within: 2s, allow_failure: true}
"""
    place = make_repository(
        tmp_path / "shop",
        config.replace("$SHOP", str(tmp_path / "shop")),
        {"network": str(Path("/proc/self/ns/net").readlink())},
    )
    say = ci(place)
    done = say("run", "--sandbox", "--json")
    assert (done.code, states(done)) == (0, {"a": "SUCCEEDED", "b": "SUCCEEDED", "c": "TIMED_OUT"}), say("log").out
    assert "left behind" not in say("log").out
    assert say("artifacts", "out", "--to", str(tmp_path / "out")).code == 0
    assert processes_of(json.loads(done.out)["commit"]) == []
    assert "--sandbox" not in say("run", "a", "--sandbox").out  # it is offered to those who have not asked for it


def test_what_succeeded_without_a_sandbox_is_not_taken_over_into_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sandbox is left out here: what counts is what the plan says of where jobs run."""
    monkeypatch.setattr("interlock.worker.ci_steps.choose_sandbox", lambda *_, **__: NO_SANDBOX)
    say = ci(make_repository(tmp_path / "shop", "jobs: {a: {steps: [echo a]}}"))

    def run(*words: str) -> list[str]:
        return classes(say(*words, "--json"))["a"]

    assert [run("run"), run("run")] == [["success"], ["reused"]]
    assert run("rerun", "--sandbox") == ["success"]  # by the plan of another place, so it counts for neither
    assert [run("run", "--sandbox"), run("run", "--sandbox")] == [["success"], ["reused"]]
    assert [run("run"), run("rerun")] == [["reused"], ["success"]]


# Repositories that are unusual.


def test_a_repository_with_ids_of_sha256_is_run(tmp_path: Path) -> None:
    place = tmp_path / "shop"
    place.mkdir()
    if subprocess.run(["git", "init", "--quiet", "--object-format=sha256", str(place)], check=False).returncode:
        pytest.skip("this git has no repositories with ids of SHA-256")
    write_files(place, {"Makefile": "test:\n\ttrue\n"})
    git(place, "add", ".")
    git(place, "commit", "--quiet", "-m", "first")
    say = ci(place)
    assert say("run").code == 0
    assert say("rerun").code == 0


def test_a_path_with_a_line_end_is_a_sentence(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "shop", "jobs: {a: {steps: ['true']}}")
    odd = tmp_path / "a\nb"
    shutil.move(place, odd)
    done = ci(odd)("run")
    assert (done.code, "has a line end, which is not supported" in done.err) == (2, True)
