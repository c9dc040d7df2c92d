"""What the simulation plays of the terms of runs: when verdicts fall, what may be lost, and what is made anew."""

from collections.abc import Sequence

from interlock.core.plugin import Storyteller
from interlock.kernel.commands import (
    SETTLES,
    Cancel,
    Claim,
    Decide,
    Finish,
    LeaseGrant,
    LeaseRef,
    Outcome,
    Register,
    Release,
    Start,
    Submit,
    Work,
)

SECOND_US = 1_000_000
ACTOR = "plugin player"
NAMES = ("a", "b", "c", "d")
BOOTS, TURNS = 3, 3
KINDS = (("workflow_run", "step"), ("ci_run", "ci_job"), ("workstream", "task"))
ENDS = ("finish", "finish", "fail", "fail", "release", "vanish")


async def keep_terms(teller: Storyteller) -> None:
    """Runs with terms of their own are worked on by workers that are lost, perhaps cancelled, and made anew."""
    queue = f"terms.{teller.random.randrange(10**9)}"
    runs: list[tuple[int, str]] = []
    for kind in KINDS:
        await submit_run_with_terms(teller, queue, kind, runs)
    for boot in range(BOOTS):
        worker = await teller.ask(Register(name=queue, incarnation=str(boot), capacity=9, actor=ACTOR))
        for turn in range(TURNS) if isinstance(worker, int) else ():
            key = f"{queue}.{boot}.{turn}"
            claim = Claim(worker=worker, key=key, nonce=f"{key:0>32}", queues=(queue,), limit=5, actor=ACTOR)
            grants = await teller.ask(claim)
            for grant in grants if isinstance(grants, list) else ():
                await end_step_or_vanish(teller, grant)
            await teller.pause(teller.random.choice((0.0, 0.5)))
    if runs:
        unit, lifecycle = teller.random.choice(runs)
        await teller.ask(Cancel(unit=unit, hard=teller.random.random() < 0.5, actor=ACTOR))
        kind = next(kind for kind in KINDS if kind[0] == lifecycle)
        await submit_run_with_terms(teller, queue, kind, runs, retry_of=unit)


async def submit_run_with_terms(
    teller: Storyteller, queue: str, kind: Sequence[str], runs: list[tuple[int, str]], retry_of: int | None = None
) -> None:
    """A run of some steps, of which each may need others, with terms that are drawn; it is planned if it has to be."""
    dice, (lifecycle, child) = teller.random, kind
    has_clocks = lifecycle == "ci_run"
    settles = (
        (None, *SETTLES[:1]) if lifecycle == "workstream" else (None, *SETTLES)
    )  # a critical task fails it at once
    run = Work(
        task="run", lifecycle=lifecycle, ref="run", queue=queue, retry_of=retry_of,
        settle=dice.choice((None, *settles)),
        plan_timeout_us=5 * SECOND_US if has_clocks else None, queue_timeout_us=9 * SECOND_US if has_clocks else None,
        cancel_timeout_us=2 * SECOND_US if has_clocks else None,
    )  # fmt: skip
    made = await teller.ask(Submit(work=(run, *draw_steps(teller, queue, child)), actor=ACTOR))
    if isinstance(made, list):
        runs.append((made[0].unit, lifecycle))
        if lifecycle != "workflow_run" and dice.random() < 0.9:
            await teller.ask(Decide(unit=made[0].unit, trigger="plan", actor=ACTOR))


def draw_steps(teller: Storyteller, queue: str, lifecycle: str) -> tuple[Work, ...]:
    """Steps of which some do not decide, some need another one, and some may lose other leases than they may fail."""
    dice = teller.random
    budgets = (None,) if lifecycle == "task" else (None, 1, 3)
    return tuple(
        Work(
            task="play", lifecycle=lifecycle, parent="run", ref=name, queue=queue, decides=dice.random() < 0.8,
            attempts=dice.randrange(1, 3), losses=dice.choice(budgets), cancel_timeout_us=2 * SECOND_US,
            needs=(dice.choice(NAMES[:place]),) if place and dice.random() < 0.3 else (),
        )
        for place, name in enumerate(NAMES)
    )  # fmt: skip


async def end_step_or_vanish(teller: Storyteller, grant: LeaseGrant) -> None:
    """A step ends in one of several ways, or nobody hears of its worker again."""
    held, end = LeaseRef(grant.unit, grant.fence, grant.lease), teller.random.choice(ENDS)
    await teller.ask(Start(held=(held,), actor=ACTOR))
    if end == "finish":
        await teller.ask(Finish(outcomes=(Outcome(held=held),), actor=ACTOR))
    elif end == "fail":
        failure = Outcome(held=held, ended="failure", error="as asked", error_class="PermanentError")
        await teller.ask(Finish(outcomes=(failure,), actor=ACTOR))
    elif end == "release":
        await teller.ask(Release(held=(held,), actor=ACTOR))
