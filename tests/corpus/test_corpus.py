"""The recorded commands get the recorded answers and leave the recorded rows, whatever way the record is stored."""

from collections import Counter
from pathlib import Path

import pytest

from interlock.core.engine import VERBS
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD
from tests.corpus.corpus import COMMANDS, SEEDS, Step, load, replay
from tests.engine.world import World
from tests.store.databases import KINDS, fresh

# The digest of an archive covers hashes; the rest leaves units alone.
NOT_RECORDED = {
    "Archive", "RestoreTree", "CreateKey", "RotateKey", "RevokeKey", "Admit", "CountEvents", "AddBlob", "AddArtifact",
    "AppendLog", "DefineTask", "ReadOutput", "PauseWork", "UnpauseWork", "AddTasks", "RetryTask", "SkipTask",
    "ReassignTask", "RunNow", "ReadSteps", "Fork", "Plan", "DefineContract",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_corpus_is_reproduced(seed: int, kind: str, tmp_path: Path, server: str) -> None:
    with fresh(kind, tmp_path, server, role="operator") as connection:
        replay(load(seed), World(connection))


def test_a_changed_answer_or_row_is_noticed(tmp_path: Path, server: str) -> None:
    for spoil in (spoil_answer, spoil_row):
        steps = load(0)
        spoil(steps)
        with fresh("sqlite memory", tmp_path, server) as connection, pytest.raises(AssertionError, match="recorded"):
            replay(steps, World(connection))


def spoil_answer(steps: list[Step]) -> None:
    steps[7].answers[0] = {"another": "answer"}


def spoil_row(steps: list[Step]) -> None:
    looked = next(step for step in steps if step.rows and step.rows["event"])
    key, row = next((key, row) for key, row in looked.rows["event"].items() if row)
    looked.rows["event"][key] = {**row, "payload": "another"}


def test_the_corpus_has_every_command_and_most_transitions() -> None:
    """A corpus that speaks of little protects little."""
    steps = [step for seed in SEEDS for step in load(seed)]
    sent = Counter(command["command"] for step in steps for command in step.commands)
    assert sum(sent.values()) == COMMANDS * len(SEEDS)
    verbs = {kind.__name__ for kind in {**VERBS, **STANDARD.commands}}
    assert verbs - set(sent) <= NOT_RECORDED
    hops = {
        (lifecycle.name, hop.source or "", hop.target) for lifecycle in shipped().values() for hop in lifecycle.hops
    }
    events = [row for step in steps if step.rows for row in step.rows["event"].values() if row]
    taken = {(row["lifecycle"], row["source"] or "", row["target"]) for row in events}
    assert len(hops & taken) >= 0.8 * len(hops - {hop for hop in hops if hop[0] == "lease"}), sorted(hops - taken)
