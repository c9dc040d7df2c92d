"""Stages as boxes: what stands for the tasks of a stage."""

import pytest

from interlock.client.stages import find_category, make_box
from interlock.store.queries.task_graphs import GraphTask


def make_task(category: str, **facts: object) -> GraphTask:
    given = {
        "unit": 1, "name": "a", "task": "a", "state": category, "outcome": None, "started_at": None, "changed_at": 0,
        "decides": 1, "policy": "{}", "retry_of": None, **facts,
    }  # fmt: skip
    return GraphTask(category=category, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("categories", "expected"),
    [
        (["success", "success"], "success"),
        (["success", "waiting"], "waiting"),
        (["success", "ready", "waiting"], "ready"),
        (["success", "active", "ready"], "active"),
        (["success", "gate"], "active"),
        (["active", "cancelled"], "cancelled"),
        (["active", "cancelled", "failure"], "failure"),
    ],
)
def test_a_stage_is_what_stands_out(categories: list[str], expected: str) -> None:
    assert find_category([make_task(category) for category in categories]) == expected


def test_a_box_counts_states_and_takes_from_the_first_start_to_the_last_end() -> None:
    tasks = [make_task("success", outcome="success", started_at=at, changed_at=at + 5) for at in (30, 10, 20)]
    box = make_box(1, "stage 1", tasks, ())
    assert (box.task, box.state, box.began_at, box.ended_at) == ("stage 1: 3 tasks", "3 success", 10, 35)
    assert make_box(1, "stage 1", [*tasks, make_task("ready")], ()).ended_at is None
