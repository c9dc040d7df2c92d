"""What the simulation plays of waiting jobs, while faults strike: children, signals and times, early and late."""

import msgspec

from interlock.core.plugin import Storyteller
from interlock.kernel.commands import Signal, Submit, Work


async def wait_for_children(teller: Storyteller) -> None:
    """A job makes children, sleeps, and waits for them; workers are lost meanwhile, and none of that is lost."""
    acts = [["spawn", 1], ["spawn", 2], ["nap", 0.5], ["join", 1], ["join", 2], ["spawn", 3], ["join", 3]]
    await submit(teller, teller.random.sample(acts[:3], 3) + acts[3:])
    await teller.pause(teller.random.choice((0.1, 1.0, 3.0)))


async def wait_for_a_signal(teller: Storyteller) -> None:
    """A job waits for a signal that comes early, late or never."""
    unit = await submit(teller, [["step", 1], ["signal", 4.0], ["step", 2]])
    await teller.pause(teller.random.choice((0.0, 0.5, 6.0)))
    if unit and teller.random.random() < 0.7:
        await teller.ask(Signal(unit=unit, name="go", payload="3"))


async def submit(teller: Storyteller, acts: list[list[object]]) -> int:
    """Submits a job that does this. Returns it; 0 if nobody answered."""
    work = Work(task="play", input=msgspec.json.encode({"acts": acts}).decode())
    answer = await teller.ask(Submit(work=(work,), actor="plugin player"))
    return int(answer[0].unit) if isinstance(answer, list) else 0
