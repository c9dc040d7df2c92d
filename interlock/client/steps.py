"""Find the steps below a job or a run by their names."""

from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.blobs import unpack
from interlock.core.effective_policy import policy_of
from interlock.kernel.lifecycle import Category
from interlock.store.queries.views import Filter, View, listing, view

if TYPE_CHECKING:
    from interlock.client.app import App


PAGE = 1_000  # steps that are read together


def read_steps(app: "App", run: int) -> list[View]:
    """Reads the steps of a run, however many they are, without those that undo another."""
    steps: list[View] = []
    after = None
    while page := app.read(listing, Filter(parent=run), PAGE, after):
        steps += page
        after = page[-1].unit.id
        if len(page) < PAGE:
            break
    return [step for step in reversed(steps) if policy_of(step.body).undoes is None]


def get_step_name(step: View) -> str:
    """Returns what people call a step: its name in the workflow, or its task."""
    return policy_of(step.body).step or step.body.task


def read_outputs(app: "App", run: int) -> dict[str, Any]:
    """Reads the outputs of the steps that have succeeded, by name; of a rerun, also of those that it goes on with."""
    outputs: dict[str, Any] = {}
    for number in (*policy_of(app.read(view, run).body).earlier, run):
        for step in read_steps(app, number):
            if step.unit.outcome == Category.SUCCESS:
                result = step.body.result
                text = None if result is None else unpack(app, result)
                outputs[get_step_name(step)] = None if text is None else msgspec.json.decode(text)
    return outputs
