"""What the simulation plays of agent runs, while faults strike: resumes, losses, questions, runs below, budgets, drift.

Each story is a person who submits a run, and decides about it. The handler does what its arguments say; a step that is
recorded and called again all the same breaks a promise, and the laws are asked at every commit.
"""

from typing import Any

import msgspec

from interlock.core.plugin import Storyteller
from interlock.kernel.budgets import Cap
from interlock.kernel.commands import Cancel, Decide, Fork, Signal, Submit, Vote, Work
from interlock.plugins.agents.options import JOB, NAME, RUN, WORKER, AgentOptions
from interlock.plugins.agents.queries import read_agent_steps

TASK, PERSON = "play", "plugin player"
DOLLAR = 1_000_000  # in millionths
Deed = list[object]  # what the handler does, and with which number


async def resume_runs(teller: Storyteller) -> None:
    """A run is stopped in the middle, and resumed, and stopped again; its steps are done once."""
    run = await submit(teller, [["step", 1], ["sleep", 0.5], ["step", 2], ["nap", 0.3], ["step", 3], ["sleep", 0.5]])
    for _ in range(teller.random.choice((1, 2))):
        await teller.pause(teller.random.choice((0.1, 0.7, 1.5)))
        await teller.ask(Cancel(unit=run, actor=PERSON))
        await resume(teller, run)


async def lose_holders(teller: Storyteller) -> None:
    """A run works for longer than its worker may live; whoever goes on has what was recorded."""
    deeds: list[Deed] = [[word, number] for number in range(1, 5) for word in ("step", "sleep")]
    await submit(teller, deeds)
    await teller.pause(teller.random.choice((0.1, 2.0)))


async def ask_people(teller: Storyteller) -> None:
    """Two questions, one after the other; each is approved or rejected, or nobody answers in time."""
    run = await submit(teller, [["step", 1], ["ask", 2.0], ["step", 2], ["ask", 3.0], ["step", 3]])
    for _ in range(2):
        await teller.pause(teller.random.choice((0.2, 1.0, 2.5)))
        await teller.ask(Vote(unit=run, voter="ann", approve=teller.random.random() < 0.8))


async def spawn_runs(teller: Storyteller) -> None:
    """A run spawns others, waits for them, and may be stopped with them, and resumed."""
    run = await submit(teller, [["step", 1], ["agent", 1], ["agent", 2], ["step", 2], ["agents", 2]])
    await teller.pause(teller.random.choice((0.3, 1.0)))
    if teller.random.random() < 0.5:
        await teller.ask(Cancel(unit=run, actor=PERSON))
        await resume(teller, run)


async def spend_money(teller: Storyteller) -> None:
    """A run comes to its soft cap, somebody answers, and to its hard one; it is resumed with a higher one."""
    budget = {"usd": Cap(hard=3 * DOLLAR, soft=2 * DOLLAR)}
    run = await submit(teller, [["spend", number] for number in range(1, 6)], budget=budget)
    await teller.pause(teller.random.choice((0.3, 1.5)))
    await teller.ask(Vote(unit=run, voter="ann", approve=teller.random.random() < 0.8))
    await teller.pause(teller.random.choice((0.3, 1.5)))
    await resume(teller, run, {"budget": {"usd": teller.random.choice((4, 10))}})


async def drift_apart(teller: Storyteller) -> None:
    """A step asks for something else than what is recorded: nothing runs, and the run goes on as a fork."""
    run = await submit(teller, [["step", 1], ["drift", 1], ["signal", 3.0], ["step", 2]])
    await teller.pause(teller.random.choice((0.3, 1.0)))
    await teller.ask(Signal(unit=run, name="go", payload="1"))
    await teller.pause(1.0)
    steps = teller.read(read_agent_steps, run) or []
    if run and steps:
        await teller.ask(Fork(unit=run, at=steps[-1].name, actor=PERSON, reason="another way"))


async def submit(teller: Storyteller, deeds: list[Deed], **own: Any) -> int:
    """Submits a run whose handler does this. Returns it; 0 if nobody answered."""
    given = msgspec.json.encode({"acts": deeds}).decode()
    options = msgspec.json.encode({NAME: AgentOptions(**own)}).decode()
    run = Work(task=TASK, lifecycle=RUN, ref=RUN, input=given, options=options)
    job = Work(task=TASK, lifecycle=JOB, parent=RUN, step=WORKER, input=given)
    answer = await teller.ask(Submit(work=(run, job), actor=PERSON))
    return int(answer[0].unit) if isinstance(answer, list) else 0


async def resume(teller: Storyteller, run: int, terms: dict[str, Any] | None = None) -> None:
    """Somebody resumes a run, by name and for a reason, on these terms; if it has not ended, that is refused."""
    data = "null" if terms is None else msgspec.json.encode(terms).decode()
    await teller.ask(Decide(unit=run, trigger="resume", actor="ann", reason="once more", data=data))


STORIES = (resume_runs, lose_holders, ask_people, spawn_runs, spend_money, drift_apart)


async def play_story(teller: Storyteller) -> None:
    """Plays one of the stories: a seed has much to do besides."""
    await teller.random.choice(STORIES)(teller)
