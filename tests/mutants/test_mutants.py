"""Every planted fault is noticed: by the simulation, most of them at once, or by the test that it names."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.mutants.mutants import (
    FOLDER,
    NAMED,
    noticing_test,
    patched,
    patched_files,
    patches,
    run_planted,
    seeds_until_caught,
)

LEAST = 25  # faults that are planted
AT_ONCE = ("double_event", "fence_does_not_grow", "made_up_lease", "missing_dead_letter_field", "wrong_tenant_filter")
SEEDS = 300  # in which each is noticed
ALL = {**patches(), **patches(NAMED)}


def test_at_least_25_faults_are_planted_and_each_is_described() -> None:
    assert len(patches()) >= LEAST
    for path in ALL.values():
        assert path.read_text(encoding="utf-8").splitlines()[0].endswith("."), path.name


def test_every_planted_fault_fits_the_code() -> None:
    misfits = []
    for name, path in ALL.items():
        try:
            patched_files(path)
        except (AssertionError, OSError) as error:
            misfits.append(f"{name}: {error}")
    assert misfits == []


def test_every_planted_fault_of_its_own_test_names_one() -> None:
    for path in patches(NAMED).values():
        file, _, test = noticing_test(path).partition("::")
        assert f"def {test.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8"), path.name


@pytest.mark.parametrize("name", ["actor_is_a_constant", "worker_stops_unasked"])
def test_a_named_test_notices_its_fault(name: str, tmp_path: Path) -> None:
    is_noticed(name, tmp_path)


@pytest.mark.proof
@pytest.mark.parametrize("name", patches(NAMED))
def test_every_named_test_notices_its_fault(name: str, tmp_path: Path) -> None:
    is_noticed(name, tmp_path)


def is_noticed(name: str, folder: Path) -> None:
    """The test fails by itself: that it cannot be found or begun is no notice."""
    done = run_planted(patches(NAMED)[name], folder)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert " error" not in done.stdout.splitlines()[-1], done.stdout


def test_a_patch_is_found_by_what_it_holds() -> None:
    patch = "Why.\n\n--- a/x.py\n+++ b/x.py\n@@ -70,2 +70,2 @@\n one\n-two\n+three\n"
    assert patched(patch, {"x.py": "zero\none\ntwo\n"}) == {"x.py": "zero\none\nthree\n"}
    with pytest.raises(AssertionError):
        patched(patch, {"x.py": "one\ntwo\none\ntwo\n"})


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_planted_fault_is_noticed_at_once(name: str, tmp_path: Path) -> None:
    assert seeds_until_caught(FOLDER / f"{name}.patch", tmp_path, most=3)[0]


@pytest.mark.proof
def test_every_planted_fault_is_noticed(tmp_path: Path) -> None:
    def caught(name: str) -> tuple[int, str]:
        (tmp_path / name).mkdir()
        return seeds_until_caught(patches()[name], tmp_path / name, SEEDS)

    names = list(patches())
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(names, pool.map(caught, names), strict=True))
    print(f"\n{'planted fault':28} {'seeds':>5}  how it was noticed")
    for name, (count, how) in found.items():
        print(f"{name:28} {count or 'none':>5}  {how[:90]}")
    assert [name for name, (count, _) in found.items() if not count] == []
