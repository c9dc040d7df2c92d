"""A guard that a lifecycle file names is asked by the engine: by which function, of which moves, and which test shows it."""

import ast
import json
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

from interlock.kernel.guards import GUARDS, list_guards
from interlock.lifecycles import shipped
from interlock.lifecycles.loader import load
from tests.conftest import ROOT, Run
from tests.lifecycles.sample import PARCEL

# By guard, the test that shows what happens where it is not true.
SHOWN = {
    "attempts_left": "tests/engine/test_jobs.py::test_lost_leases_use_up_the_attempts",
    "available": "tests/engine/test_jobs.py::test_a_delayed_job_is_visible_and_not_available",
    "cancel_asked": "tests/unit/test_policy.py::test_only_an_answer_to_a_cancel_is_heard",
    "cancel_now": "tests/engine/test_jobs.py::test_a_soft_cancel_becomes_hard_at_its_deadline",
    "cancel_overdue": "tests/engine/test_ci.py::test_a_cancel_that_nobody_answers_is_forced",
    "capabilities_match": "tests/engine/test_jobs.py::test_a_worker_gets_only_what_it_can_do",
    "children_say_so": "tests/engine/test_families.py::test_other_failures_let_the_rest_go_on_until_nothing_can",
    "current_child_says_so": "tests/engine/test_families.py::test_a_failed_run_is_resumed_by_a_person_with_a_new_job",
    "deadline_passed": "tests/engine/test_ci.py::test_a_plan_that_takes_too_long_fails_the_run",
    "drained": "tests/engine/test_jobs.py::test_a_drained_worker_ends_with_its_last_unit",
    "failed_for_good": "tests/engine/test_jobs.py::test_a_failure_for_good_is_not_tried_again",
    "holds_nothing": "tests/engine/test_jobs.py::test_a_worker_is_busy_while_it_holds_something",
    "lease_expired": "tests/engine/test_jobs.py::test_a_lease_that_is_not_renewed_is_over_and_its_word_is_stale",
    "needs_met": "tests/engine/test_ci.py::test_a_run_is_planned_executed_and_reported",
    "no_attempt_left": "tests/engine/test_ci.py::test_a_failure_before_the_acknowledgement_uses_nothing_up",
    "only_open_child": "tests/engine/test_families.py::test_an_agent_run_has_one_open_job_at_a_time",
    "plan_has_children": "tests/engine/test_families.py::test_a_plan_without_tasks_is_refused",
    "quorum_reached": "tests/engine/test_votes.py::test_a_single_order_does_not_go_past_the_votes",
    "retryable": "tests/unit/test_policy.py::test_after_a_failure",
}
UNNAMED = {"only_open_child"}  # asked of every submit, and of use where a parent has one child at a time


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_names_the_function_that_asks_it(name: str) -> None:
    package, *path = GUARDS[name].asked_by.removeprefix("interlock.").split(".")
    module, *names = path
    asks = reduce(getattr, names, import_module(f"interlock.{package}.{module}"))
    assert callable(asks)


def test_every_guard_is_named_by_a_shipped_lifecycle() -> None:
    named = {name for lifecycle in shipped().values() for move in lifecycle.moves.values() for name in move.guards}
    assert named == GUARDS.keys()


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_move_names_all_that_is_asked_of_it(name: str) -> None:
    lifecycle = shipped()[name]
    for move in lifecycle.moves.values():
        assert set(move.guards) | UNNAMED == set(list_guards(lifecycle, move)) | UNNAMED, (move.source, move.trigger)


@pytest.mark.parametrize("name", sorted({*GUARDS, *SHOWN}))
def test_a_guard_has_a_test_that_shows_it(name: str) -> None:
    assert name in GUARDS
    file, _, function = SHOWN[name].partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", GUARDS)
def test_the_page_about_files_lists_every_guard(name: str) -> None:
    page = (ROOT / "docs/lifecycle-files.md").read_text(encoding="utf-8")
    assert f"| `{name}` | {GUARDS[name].meaning} |" in page


def test_guards_and_notes_are_shown_and_exported(tmp_path: Path, interlock: Run) -> None:
    file = tmp_path / "parcel.toml"
    old = 'retry    = { to = "packed", opens_attempt = true }'
    new = old.replace(" }", ', guard = ["attempts_left", "retryable"], note = "the courier is rested" }')
    file.write_text(PARCEL.replace(old, new), encoding="utf-8")
    move = load(file).move("carried", "retry")
    assert (move.guards, move.note) == (("attempts_left", "retryable"), "the courier is rested")
    assert "attempts_left and retryable; the courier is rested" in interlock("lifecycle", "show", str(file)).stdout
    (lifecycle,) = json.loads(interlock("lifecycle", "export", "--json", str(file)).stdout)["lifecycles"]
    (told,) = [one for one in lifecycle["moves"] if one["trigger"] == "retry"]
    assert (told["guards"], told["note"]) == (["attempts_left", "retryable"], "the courier is rested")


def test_lint_says_what_may_be_named(tmp_path: Path, interlock: Run) -> None:
    file = tmp_path / "parcel.toml"
    old = 'claim  = "carried"'
    file.write_text(PARCEL.replace(old, 'claim = { to = "carried", guard = "it is light" }'), encoding="utf-8")
    found = interlock("lifecycle", "lint", str(file)).stdout
    assert "state 'packed': 'claim' names the guard 'it is light', which is no guard of the engine" in found
    assert "asked for 'claim' here are available, capabilities_match; words that only explain are a note" in found
