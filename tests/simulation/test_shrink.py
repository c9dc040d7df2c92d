"""A failing record is made small, and what is left of it is a test that fails for the same reason."""

from pathlib import Path
from typing import Any

import pytest

from interlock.core.reactions import roll_up
from interlock.testing import simulate
from interlock.testing.simulation.replay import replay
from interlock.testing.simulation.shrink import shrink_steps, write_test


def test_a_record_is_lived_again_without_the_rest_of_the_system() -> None:
    for seed in range(3):
        assert replay(simulate(seed, keep_steps=True).steps) == []


def test_a_fault_is_shrunk_to_a_test_that_can_be_pasted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted = roll_up.add

    def twice(total: dict[str, int], unit: Any, sign: int) -> None:
        counted(total, unit, sign)
        total["succeeded"] += sign * (unit.outcome == "success")

    monkeypatch.setattr(roll_up, "add", twice)  # the engine's word for it; the laws have their own
    report = next(
        filter(lambda item: item.violations, (simulate(seed, kinds=(), keep_steps=True) for seed in range(1, 9)))
    )
    small = shrink_steps(report.steps)
    assert replay(small)
    commands = [command for step in small for command in step.commands]
    assert len(commands) <= 6
    text = write_test(small, report.seed)
    replayed: dict[str, Any] = {}
    exec(compile(text, "pasted", "exec"), replayed)
    with pytest.raises(AssertionError):
        replayed[f"test_seed_{report.seed}"]()
    monkeypatch.undo()
    replayed[f"test_seed_{report.seed}"]()
