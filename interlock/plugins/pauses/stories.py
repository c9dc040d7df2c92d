"""What the simulation plays of pauses and outages."""

from interlock.core.plugin import Storyteller
from interlock.kernel.commands import (
    Claim,
    Finish,
    LeaseGrant,
    LeaseRef,
    Outcome,
    PauseWork,
    Register,
    Release,
    Resource,
    Signal,
    Start,
    Submit,
    UnpauseWork,
    Work,
)

SECOND_US = 1_000_000
ACTOR = "plugin player"
TURNS = 10
AWAY = 3  # turns in which the bank is away
USES = (Resource("vault"), Resource("vault", "shared"), Resource("clerk", "counted", 2, 3))


async def pause_for_a_while(teller: Storyteller) -> None:
    """Pauses the queue, a task or a job for some seconds, has something submitted meanwhile, and may unpause it."""
    work = Work(task="play", input='{"acts": []}')
    submitted = await teller.ask(Submit(work=(work,), actor=ACTOR))
    targets: list[dict[str, str | int]] = [{"queue": "default"}, {"task": "play"}]
    if isinstance(submitted, list):
        targets.append({"unit": submitted[0].unit})
    target = teller.random.choice(targets)
    for_us = teller.random.randrange(1, 4) * SECOND_US
    await teller.ask(PauseWork(**target, for_us=for_us, actor=ACTOR))  # type: ignore[arg-type]
    await teller.ask(Submit(work=(work, work), actor=ACTOR))
    await teller.pause(teller.random.random() * 4)
    if teller.random.random() < 0.5:
        await teller.ask(UnpauseWork(**target, actor=ACTOR))  # type: ignore[arg-type]


async def pause_what_has_a_clock(teller: Storyteller) -> None:
    """A run with a gate and a job that waits is paused, and so is the gate; their clocks go on when the pauses end."""
    dice = teller.random
    made = await teller.ask(
        Submit(
            actor=ACTOR,
            work=(
                Work(task="release", lifecycle="workflow_run", ref="run"),
                Work(task="sign", lifecycle="approval", parent="run", expires_us=2 * SECOND_US),
                Work(task="wait", lifecycle="agent_run", ref="agent", timeout_us=2 * SECOND_US),
                Work(
                    task="play", lifecycle="agent_job", parent="agent",
                    input='{"acts": [["sleep", 0.5], ["signal", 3.0], ["sleep", 0.1]]}',
                ),
            ),
        )
    )  # fmt: skip
    if not isinstance(made, list):
        return
    run, gate, agent, job = (each.unit for each in made)
    for _ in range(4):
        paused = dice.choice((run, gate, agent))
        for_us = dice.randrange(1, 4) * SECOND_US  # it ends by itself, whoever is lost meanwhile
        await teller.ask(PauseWork(unit=paused, for_us=for_us, reason=str(dice.random()), actor=ACTOR))
        await teller.pause(dice.random() * 2)
        if dice.random() < 0.5:
            await teller.ask(UnpauseWork(unit=paused, actor=ACTOR))
    if dice.random() < 0.5:
        await teller.ask(Signal(unit=job, name="go", actor=ACTOR))


async def report_an_outage(teller: Storyteller) -> None:
    """A worker of its own queue finds the bank away, and works on when it is back; what it does needs resources."""
    queue = f"bank.{teller.random.randrange(10**9)}"
    worker = await teller.ask(Register(name=queue, incarnation="1", capacity=9, actor=ACTOR))
    if not isinstance(worker, int):
        return
    for _ in range(5):
        use = teller.random.choice(USES)
        work = Work(task="play", queue=queue, depends=("bank",), resources=(use,), input='{"acts": []}')
        await teller.ask(Submit(work=(work,), actor=ACTOR))
    for turn in range(TURNS):
        key = f"{queue}.{turn}"
        claim = Claim(worker=worker, key=key, nonce=f"{key:0>16}", queues=(queue,), limit=3, actor=ACTOR)
        grants = await teller.ask(claim)
        for grant in grants if isinstance(grants, list) else ():
            await work_on(teller, grant, is_away=turn < AWAY)
        await teller.pause(1)


async def work_on(teller: Storyteller, grant: LeaseGrant, *, is_away: bool) -> None:
    """Works on a job, or reports that what it needs is away."""
    held = LeaseRef(grant.unit, grant.fence, grant.lease)
    await teller.ask(Start(held=(held,), actor=ACTOR))
    if is_away:
        await teller.ask(Release(held=(held,), outage="bank", snooze_us=SECOND_US, actor=ACTOR))
    else:
        await teller.ask(Finish(outcomes=(Outcome(held=held),), actor=ACTOR))
