"""Seeds hold every law and promise, and the same seed has the same history whoever plays it."""

import os
import subprocess
import sys

import pytest

from interlock.testing import simulate
from tests.conftest import ROOT

COMMANDS, UNITS = 200, 20  # of a seed, at least


def played(first: int, last: int, hash_seed: str) -> "subprocess.Popen[str]":
    """A process that plays seeds, with an order of its own for whatever Python does not keep in order."""
    command = [sys.executable, "-m", "tests.simulation.seeds", str(first), str(last)]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)


def play_twice(first: int, last: int) -> None:
    one, two = played(first, last, "1"), played(first, last, "2718")
    with one, two:
        said = one.communicate()[0].splitlines(), two.communicate()[0].splitlines()
    assert (one.returncode, two.returncode) == (0, 0)
    assert said[0] == said[1]
    assert len(said[0]) == last - first
    for line in said[0]:
        seed, _, commands, units, violations, *_ = line.split()
        assert int(violations) == 0, line
        assert int(commands) >= COMMANDS, seed
        assert int(units) >= UNITS, seed


def test_the_same_seed_has_the_same_history() -> None:
    play_twice(1, 25)


@pytest.mark.proof
def test_a_hundred_seeds_have_the_same_history_twice() -> None:
    play_twice(1_000, 1_100)


def test_seeds_differ() -> None:
    assert simulate(1, kinds=()).hash != simulate(2, kinds=()).hash


def test_without_faults_nothing_is_late() -> None:
    report = simulate(3, kinds=())
    assert (report.violations, report.late, dict(report.struck)) == ([], 0, {})
