"""Preview of a decision: which steps would start, and what would become of the run."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from interlock.client.inbox import InboxItem, read_items
from interlock.core.effective_policy import policy_of
from interlock.kernel.approvals import may_vote, triggers_for
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.lifecycle_options import RollUp
from interlock.server.auth import Caller
from interlock.store.connection import Connection
from interlock.store.queries.followers import Follower, read_followers
from interlock.store.queries.views import View, views_of

NAMED_MAX = 3  # steps that a sentence names
FAILING = (RollUp.ALL, RollUp.REQUIRED)  # a run of these fails with a step


class Decision(NamedTuple):
    """What is known of something that waits for a person: its row, what it is part of, and what waits for it."""

    view: View
    parent: View | None
    followers: Sequence[Follower]


def read_decisions(connection: Connection, tenant: int, units: Sequence[int]) -> dict[int, Decision]:
    """Reads what decisions about these will touch, by unit; those that are gone are left out."""
    views = views_of(connection, tenant, units)
    parents = views_of(connection, tenant, [view.unit.parent for view in views.values() if view.unit.parent])
    followers = read_followers(connection, tenant, list(views))
    return {
        unit: Decision(view, parents.get(view.unit.parent or 0), [each for each in followers if each.needs == unit])
        for unit, view in views.items()
    }


def read_refusal(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], unit: int, caller: Caller
) -> str:
    """Returns why somebody may not vote on what waits at a unit; empty if they may, or if nothing waits there."""
    view = views_of(connection, tenant, [unit]).get(unit)
    lifecycle = lifecycles.get(view.unit.lifecycle) if view else None
    if view is None or lifecycle is None or not triggers_for(lifecycle, view.unit.state):
        return ""
    (item,) = read_items(connection, tenant, lifecycles, [view], checks=False)
    return refuse_vote(item, caller)


def refuse_vote(item: InboxItem, caller: Caller) -> str:
    """Returns why somebody may not vote on an item of the inbox; empty if they may."""
    if item.not_submitter and item.submitter == caller.name:
        return "whoever asked for it may not vote on it"
    if not may_vote(item.approvers, caller.name, caller.roles):
        return f"{', '.join(item.approvers)} may vote on it, and this key is '{caller.name}'"
    if any(vote.voter == caller.name for vote in item.votes):
        return "you have voted on it"
    return ""


def describe_decision(
    lifecycles: Mapping[str, Lifecycle], item: Mapping[str, Any], word: str, decision: Decision
) -> str:
    """Returns what saying this word will do. `item` is what the inbox tells of it, with `yes`, the votes so far."""
    lifecycle = lifecycles[item["lifecycle"]]
    if not lifecycle.allows(item["state"], word):
        return ""
    state = lifecycle.states[lifecycle.move(item["state"], word).path[-1]]
    run = item["run_task"] or item["run"]
    if not state.settled:
        return f"it becomes {state.name}: {state.about}" if state.about else f"it becomes {state.name}"
    started = [each for each in decision.followers if each.by_end or state.category is Category.SUCCESS]
    stopped = [each for each in decision.followers if each not in started]
    parts = [f"{list_names(at_once)} {count_verb(at_once, 'start')}"] if (at_once := find_alone(started)) else []
    if later := [each for each in started if each.unmet > 1]:
        parts.append(f"{list_names(later)} {count_verb(later, 'start')} when all else that is needed is done")
    if run and state.category is Category.SUCCESS:
        parts.append(f"{run} goes on")
    elif run:
        parts.append(describe_refusal(lifecycles, word, decision, run))
    if stopped:
        parts.append(f"{list_names(stopped)} {'does' if len(stopped) == 1 else 'do'} not start")
    missing = item["quorum"] - item["yes"] - 1 if word == "approve" else 0
    votes = f"one vote of {item['quorum']}; with {missing} more: " if missing > 0 else ""
    return votes + ("; ".join(parts) or f"it ends as {state.name}")


def describe_refusal(lifecycles: Mapping[str, Lifecycle], word: str, decision: Decision, run: str) -> str:
    """Returns what becomes of a run, or of the job that waits, once a part of it ended without success."""
    parent = decision.parent
    rule = lifecycles[parent.unit.lifecycle].options.roll_up if parent else RollUp.NONE
    cancels = word == "reject" and policy_of(decision.view.body).on_reject != "fail"
    if parent and cancels and lifecycles[parent.unit.lifecycle].allows(parent.unit.state, "cancel"):
        return f"{run} is cancelled"
    return f"{run} fails" if rule in FAILING else f"{run} goes on, and is told so"


def find_alone(followers: Sequence[Follower]) -> list[Follower]:
    """Returns those that wait for nothing else."""
    return [each for each in followers if each.unmet <= 1]


def list_names(followers: Sequence[Follower]) -> str:
    """Returns the names of some steps, and how many more there are."""
    names = [each.name for each in followers[:NAMED_MAX]]
    if more := len(followers) - len(names):
        names.append(f"{more:,} more")
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def count_verb(followers: Sequence[Follower], verb: str) -> str:
    """Returns a verb in the singular or the plural, by how many there are."""
    return f"{verb}s" if len(followers) == 1 else verb
