"""Seeds that once broke something hold: what the engine alone did wrong has its own test in tests/regressions."""

import pytest

from interlock.testing import simulate

SEEDS = (
    70, 83, 2042, 2207, 300_275, 300_751, 1006, 1081, 100_823, 100_116, 100_358, 100_545, 100_724, 100_736, 701,
)  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_that_once_broke_something(seed: int) -> None:
    assert simulate(seed).violations == []
