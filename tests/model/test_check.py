"""The model check holds for every lifecycle, explores enough to mean it, and catches planted faults."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from interlock.audit.model.check import Bounds, CheckReport, check
from interlock.audit.model.properties import PROMISES
from interlock.kernel import policy
from interlock.kernel.lifecycle import Category, Lifecycle, Move
from interlock.lifecycles import FOLDER, shipped
from interlock.lifecycles.loader import parse
from tests.conftest import Run
from tests.lifecycles.sample import PARCEL

CLAIMED = ["agent_job", "step", "job", "task", "ci_attempt"]
SMALL = Bounds(attempts=2, messages=2)
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("name", CLAIMED)
def test_units_that_are_claimed_keep_every_promise(name: str) -> None:
    report = check(shipped()[name], shipped(), Bounds())
    assert report.findings == []
    assert report.states >= 10_000
    assert report.moves_not_taken == []


@pytest.mark.parametrize("name", [name for name in shipped() if name not in CLAIMED])
def test_the_other_lifecycles_keep_every_promise(name: str) -> None:
    report = check(shipped()[name], shipped(), Bounds(attempts=3, messages=1))
    assert report.findings == []
    assert report.moves_not_taken == []


def test_a_lifecycle_of_ones_own_is_explored_too() -> None:
    report = check(parse(PARCEL, "parcel.toml"), shipped(), SMALL)
    assert report.findings == []
    assert report.moves_not_taken == []


# Planted faults: in the rules, and in the data.


def ignoring(**ignored: bool) -> Patch:
    """The judgement of stale messages, with parts of it left out."""
    real = policy.why_stale

    def stale(lease: Lifecycle, state: str, **facts: object) -> str:
        if ignored.get("fence"):
            facts["fence"] = facts["sent"]
        if ignored.get("owner"):
            facts["owner"] = facts["by"]
        if ignored.get("expiry"):
            facts["now"] = -1
        if ignored.get("end"):
            state = next(name for name in lease.states if lease.category(name) is Category.ACTIVE)
        return real(lease, state, **facts)  # type: ignore[arg-type]

    return lambda patch: patch.setattr(policy, "why_stale", stale)


def swap(name: str, function: object) -> Patch:
    return lambda patch: patch.setattr(policy, name, function)


def forgetful(self: policy.AttemptsUsed, *, lost: bool = False) -> bool:
    return policy.AttemptsUsed.__dict__["honest"](replace(self, cancel_asked=False), lost=lost)  # type: ignore[no-any-return]


def no_mind_of_cancel(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(policy.AttemptsUsed, "honest", policy.AttemptsUsed.left, raising=False)
    patch.setattr(policy.AttemptsUsed, "left", forgetful)


def astray(self: Lifecycle, state: str | None, trigger: str) -> Move:
    """A move that ends somewhere else than its table says."""
    move = self.moves[state, trigger]
    return replace(move, path=(self.initial,)) if trigger == "complete" else move


REAL_STALE = policy.why_stale
RULES: list[tuple[str, str, Patch, str]] = [
    ("no fence", "job", ignoring(fence=True, owner=True), "one-owner"),
    ("fence without owner", "step", ignoring(owner=True), "one-owner"),
    ("expiry ignored", "job", ignoring(expiry=True), "one-owner"),
    ("an ended lease still speaks", "job", ignoring(end=True), "one-owner"),
    ("claim without looking for a holder", "step", swap("claim_trigger", lambda lifecycle, state, held: "reclaim" if lifecycle.allows(state, "reclaim") else "claim" if lifecycle.allows(state, "claim") else ""), "one-owner"),
    ("the fence stands still", "job", swap("next_fence", lambda fence: max(fence, 1)), "stale-stays"),
    ("budget ignored after a failure", "job", lambda patch: patch.setattr(policy.AttemptsUsed, "left", lambda self, lost=False: True), "budget"),
    ("budget ignored after a loss", "agent_job", swap("after_loss", lambda lifecycle, state, tally: ""), "budget"),
    ("a cancel is outlived by a retry", "job", no_mind_of_cancel, "cancel-holds"),
    ("a cancel is answered that nobody asked for", "job", swap("after_stop", lambda lifecycle, state, cancel_requested: policy.choose(lifecycle, state, "stopped")), "cancel-holds"),
    ("a lease outlives its unit", "job", swap("keeps_lease", lambda lifecycle, state: True), "one-owner"),
    ("a lost lease is never noticed", "job", swap("after_loss", lambda lifecycle, state, tally: ""), "can-end"),
    ("a deferred cancel is forgotten", "ci_run", swap("is_cancel_resumed", lambda lifecycle, source, target: False), "cancel-holds"),
    ("a hard cancel only asks", "job", swap("cancel_action", lambda lifecycle, state, hard, held: policy.ASK if held else policy.choose(lifecycle, state, "cancel")), "cancel-holds"),
    ("a lost lease forgets the cancel", "job", swap("after_loss", lambda lifecycle, state, tally: "lost" if tally.losses < 2 else "exhaust"), "cancel-holds"),
    ("a lease is never active", "job", swap("activates", lambda lifecycle, state: False), "lease-law"),
    ("a lease is active before the start", "job", swap("activates", lambda lifecycle, state: True), "lease-law"),
    ("a beat starts what nobody acknowledged", "ci_attempt", swap("beat_trigger", lambda lifecycle, state: "beat" if lifecycle.allows(state, "beat") else "start" if lifecycle.allows(state, "start") else ""), "lease-law"),
    ("an outcome revokes the lease", "job", lambda patch: patch.setitem(policy.LEASE_ENDS, "finish", "revoke"), "lease-law"),
    ("an expiry completes the lease", "step", lambda patch: patch.setitem(policy.LEASE_ENDS, "lose", "complete"), "lease-law"),
    ("a fence nobody granted is heard", "job", lambda patch: patch.setattr(policy, "why_stale", lambda lease, state, **facts: "" if facts["sent"] > facts["fence"] else REAL_STALE(lease, state, **facts)), "one-owner"),
    ("two budgets are one", "ci_attempt", lambda patch: patch.setattr(policy.AttemptsUsed, "left", lambda self, lost=False: not self.cancel_asked and self.failures + self.losses < self.budget.attempts), "budget"),
    ("a timeout is never tried again", "job", swap("after_timeout", lambda lifecycle, state, tally: "time_out"), "budget"),
    ("a failure under a cancel is no answer to it", "job", swap("after_failure", lambda lifecycle, state, tally, retryable: "retry" if tally.left() and retryable and lifecycle.allows(state, "retry") else policy.choose(lifecycle, state, "fail", "bury")), "cancel-holds"),
    ("a move ends elsewhere", "step", lambda patch: patch.setattr(Lifecycle, "move", astray), "listed-moves"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "name", "plant", "promise"), RULES, ids=[rule[0] for rule in RULES])
def test_a_fault_planted_in_the_rules_is_caught(
    fault: str, name: str, plant: Patch, promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert_caught(check(shipped()[name], shipped(), Bounds(attempts=3, messages=1)), promise)


def without(*keys: tuple[str, str]) -> Callable[[Lifecycle], Lifecycle]:
    def spoil(lifecycle: Lifecycle) -> Lifecycle:
        assert all(key in lifecycle.moves for key in keys)
        return replace(lifecycle, moves={key: move for key, move in lifecycle.moves.items() if key not in keys})

    return spoil


def changed(state: str, trigger: str, **changes: object) -> Callable[[Lifecycle], Lifecycle]:
    def spoil(lifecycle: Lifecycle) -> Lifecycle:
        move = replace(lifecycle.moves[state, trigger], **changes)  # type: ignore[arg-type]
        return replace(lifecycle, moves={**lifecycle.moves, (state, trigger): move})

    return spoil


def reopened(lifecycle: Lifecycle) -> Lifecycle:
    move = replace(lifecycle.moves["queued", "claim"], source="succeeded", trigger="reopen")
    return replace(lifecycle, moves={**lifecycle.moves, ("succeeded", "reopen"): move})


DATA: list[tuple[str, str, Callable[[Lifecycle], Lifecycle], str]] = [
    ("no lost-lease move", "job", without(("running", "lost")), "answered"),
    ("no exhaust", "step", without(("RUNNING", "exhaust")), "answered"),
    ("a retry that opens no attempt", "job", changed("running", "retry", opens_attempt=False), "forward"),
    ("a settled job is reopened", "job", reopened, "settled-stays"),
    ("a forced cancel that is not listed", "ci_attempt", without(("CANCEL_REQUESTED", "overdue")), "answered"),
    ("a logical job that cannot follow", "ci_job", without(("RUNNING", "upload")), "answered"),
    (
        "a logical job that follows wrongly",
        "ci_job",
        changed("CANCEL_REQUESTED", "stopped", path=("SUCCEEDED",)),
        "follows",
    ),
    (
        "a logical job that fails where its attempt timed out",
        "ci_job",
        changed("RUNNING", "time_out", path=("FAILED",)),
        "follows",
    ),
    ("nobody may claim", "job", without(("queued", "claim")), "can-end"),
    ("a retry whose delay never ends", "task", without(("retrying", "due")), "can-end"),
]


@pytest.mark.parametrize(("fault", "name", "spoil", "promise"), DATA, ids=[fault[0] for fault in DATA])
def test_a_fault_planted_in_the_data_is_caught(
    fault: str, name: str, spoil: Callable[[Lifecycle], Lifecycle], promise: str
) -> None:
    broken = spoil(shipped()[name])
    assert_caught(check(broken, {**shipped(), name: broken}, SMALL), promise)


def test_a_move_that_nothing_can_take_is_caught() -> None:
    dead = replace(shipped()["job"].moves["running", "complete"], source="queued", trigger="start")
    broken = replace(shipped()["job"], moves={**shipped()["job"].moves, ("queued", "start"): dead})
    assert_caught(check(broken, {**shipped(), "job": broken}, Bounds(attempts=3, messages=1)), "no-dead-moves")


@pytest.mark.parametrize(
    ("state", "trigger", "target"), [("ACTIVE", "complete", "CANCELED"), ("GRANTED", "activate", "EXPIRED")]
)
def test_a_fault_in_the_lifecycle_of_leases_is_caught(state: str, trigger: str, target: str) -> None:
    broken = changed(state, trigger, path=(target,))(shipped()["lease"])
    report = check(shipped()["job"], {**shipped(), "lease": broken}, SMALL)
    assert "lease-law" in {finding.promise for finding in report.findings}


def test_every_move_of_a_lease_is_taken_by_some_unit() -> None:
    taken = {hop for name in CLAIMED for hop in check(shipped()[name], shipped(), SMALL).lease_moves_taken}
    assert taken == {(hop.source, hop.target) for hop in shipped()["lease"].hops if hop.source}


def test_a_follower_of_ones_own_is_explored_and_not_ours(tmp_path: Path, interlock: Run) -> None:
    """The one that was named, even if a shipped lifecycle follows the same child."""
    text = (FOLDER / "ci_job.toml").read_text(encoding="utf-8").replace('name = "ci_job"', 'name = "my_job"')
    (tmp_path / "my_job.toml").write_text(text)
    done = interlock("lifecycle", "check", tmp_path / "my_job.toml", "--messages", "1")
    assert "ci_attempt with my_job" in done.stdout
    (tmp_path / "my_job.toml").write_text(text.replace('follows = "ci_attempt"', 'follows = "nothing"'))
    done = interlock("lifecycle", "check", tmp_path / "my_job.toml")
    assert (done.returncode, done.stdout.count("Traceback")) == (2, 0)
    assert "my_job follows 'nothing', which is not known" in done.stderr


def assert_caught(report: CheckReport, promise: str) -> None:
    assert promise in PROMISES
    assert promise in {finding.promise for finding in report.findings}, report.findings[:3]


def test_every_promise_is_shown_to_break() -> None:
    caught = {rule[-1] for rule in RULES} | {fault[-1] for fault in DATA}
    assert set(PROMISES) == caught | {"no-dead-moves"}  # which has a test of its own


def test_a_stale_message_that_is_heard_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late beat must not bring an expired lease back to life."""
    real = policy.why_stale

    def revived(lease: Lifecycle, state: str, **facts: object) -> str:
        ended = lease.category(state) is Category.FAILURE
        return "" if ended and facts["sent"] == facts["fence"] else real(lease, state, **facts)  # type: ignore[arg-type]

    monkeypatch.setattr(policy, "why_stale", revived)
    assert_caught(check(shipped()["agent_job"], shipped(), SMALL), "stale-stays")


def test_a_finding_tells_the_shortest_way_to_it() -> None:
    broken = without(("running", "lost"))(shipped()["job"])
    report = check(broken, {**shipped(), "job": broken}, SMALL)
    assert report.findings[0].trace == [
        "A claims (fence 1)",
        "start from A (fence 1) is sent",
        "start from A (fence 1) arrives",
        "the lease runs out",
    ]


# The command.


def test_the_command_prints_bounds_and_states(interlock: Run) -> None:
    done = interlock("lifecycle", "check", "agent_job", "approval", "--attempts", "2", "--messages", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Within 2 attempts, 2 messages in flight and 2 workers (and one attempt that is given back" in done.stdout
    assert "kept in every state" in done.stdout
    assert all(promise in done.stdout for promise in PROMISES.values())


def test_the_command_speaks_json(interlock: Run) -> None:
    done = interlock("lifecycle", "check", "agent_job", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (0, True)
    assert told["reports"][0]["lifecycle"] == "agent_job"
    assert told["reports"][0]["states"] >= 10_000
    assert told["reports"][0]["bounds"] == {"attempts": 3, "messages": 3}


def test_the_command_checks_a_file(tmp_path: Path, interlock: Run) -> None:
    (tmp_path / "parcel.toml").write_text(PARCEL)
    done = interlock("lifecycle", "check", tmp_path / "parcel.toml", "--attempts", "2")
    assert done.returncode == 0, done.stdout
    assert "parcel" in done.stdout


def test_the_command_reports_a_broken_promise(tmp_path: Path, interlock: Run) -> None:
    """Lints are content with any way to an end; a place that only a cancel leads out of takes exploring."""
    text = PARCEL.replace('invalid = { to = "returned"', 'invalid = { to = "shelved"')
    text = text.replace(
        "[birth]", 'shelved = { category = "waiting", deadline = "none", deadline_why = "Nobody asks." }\n[birth]'
    )
    (tmp_path / "parcel.toml").write_text(text + '[moves.shelved]\ncancel = "stopped"\n')
    assert interlock("lifecycle", "lint", tmp_path / "parcel.toml").returncode == 0
    done = interlock("lifecycle", "check", tmp_path / "parcel.toml", "--attempts", "2")
    assert done.returncode == 1
    assert "[can-end] from shelved in attempt 1 no end can be reached" in done.stdout
    assert "after: 'ready' is fired; A claims (fence 1)" in done.stdout


@pytest.mark.parametrize(("option", "value"), [("--attempts", "1"), ("--messages", "0"), ("--attempts", "many")])
def test_bounds_that_make_no_sense_are_refused(option: str, value: str, interlock: Run) -> None:
    done = interlock("lifecycle", "check", "job", option, value)
    assert done.returncode == 2
    assert option in done.stderr
    assert "Traceback" not in done.stderr
