"""What the steps of a run came to, as later steps see it: by the name of the step."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from interlock.blobs.store import read_value
from interlock.core.effective_policy import policy_in, policy_of
from interlock.core.outcomes import keep_result
from interlock.kernel.rows import Unit
from interlock.plugins.workflows.queries import read_child_results
from interlock.store.unit_of_work import UnitOfWork

NOTHING = "null"


def read_outputs_of_steps(tx: UnitOfWork, units: Iterable[Unit]) -> dict[int, dict[str, str]]:
    """By unit that is a step: what the steps of its run have come to, and those of the runs that it goes on with."""
    runs = {unit.id: list_runs_of(tx, unit) for unit in units}
    below = read_by_run(tx, sorted({run for some in runs.values() for run in some}))
    return {unit: merge_outputs(below, some) for unit, some in runs.items()}


def read_outputs_of_runs(tx: UnitOfWork, runs: Sequence[int]) -> dict[str, str]:
    """What the steps of these runs have come to; a later run's word counts."""
    return merge_outputs(read_by_run(tx, sorted(runs)), runs)


def list_runs_of(tx: UnitOfWork, unit: Unit) -> tuple[int, ...]:
    """Returns the runs whose outputs a step may read: its own last."""
    own = (unit.parent,) if unit.parent is not None else ()
    return (*policy_of(tx.body(unit)).earlier, *own)


def read_by_run(tx: UnitOfWork, runs: list[int]) -> dict[int, dict[str, str]]:
    """Reads the outputs of runs, by run and by step."""
    outputs: dict[int, dict[str, str]] = {}
    for run, policy, result in read_child_results(tx, runs):
        own = policy_in(policy)
        if own.step is not None and own.undoes is None:
            outputs.setdefault(run, {})[own.step] = result or NOTHING
    return outputs


def merge_outputs(below: dict[int, dict[str, str]], runs: Sequence[int]) -> dict[str, str]:
    """Merges the outputs of several runs; a later run's wins."""
    return {name: output for run in runs for name, output in below.get(run, {}).items()}


def read_known_values(tx: UnitOfWork, unit: Unit) -> dict[str, Any]:
    """What a step knows: the arguments of its run, and the outputs of the steps before it."""
    given = msgspec.json.decode(read_value(tx.connection.blobs, unit.tenant, tx.body(unit).input))
    outputs = read_outputs_of_runs(tx, list_runs_of(tx, unit))
    return {
        **(given if isinstance(given, dict) else {}),
        **{
            name: msgspec.json.decode(read_value(tx.connection.blobs, unit.tenant, output))
            for name, output in outputs.items()
        },
    }


def hand_over_outputs(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, Any]]:
    """What a worker is told of the steps among these units: the outputs of earlier ones."""
    return {unit: {"outputs": tuple(before.items())} for unit, before in read_outputs_of_steps(tx, units).items()}


def gather_outputs(tx: UnitOfWork, run: Unit, trigger: str) -> None:
    """A run that is a step of another one, and succeeds, has the outputs of its own steps as its result."""
    if trigger == "succeed" and run.parent is not None and policy_of(tx.body(run)).step is not None:
        keep_result(tx, run, encode_run_outputs(tx, run))


def encode_run_outputs(tx: UnitOfWork, run: Unit) -> str:
    """What a run that is a step of another one came to: the outputs of its own steps, by name."""
    outputs = read_outputs_of_runs(tx, [run.id]).items()
    texts = {name: read_value(tx.connection.blobs, run.tenant, output) for name, output in outputs}
    return msgspec.json.encode({name: msgspec.Raw(text.encode()) for name, text in texts.items()}).decode()
