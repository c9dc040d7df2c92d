"""What the simulation plays of effects, while faults strike: workers are lost around a call to the outside."""

import msgspec

from interlock.core.plugin import Storyteller
from interlock.kernel.commands import Submit, Work


async def call_the_outside(teller: Storyteller) -> None:
    """A job makes calls to the outside: it looks what came of one, or of one knows that nothing did."""
    acts = [["effect", 1], ["step", 1], ["effect", 2]]
    work = Work(task="play", input=msgspec.json.encode({"acts": acts}).decode(), attempts=9)
    await teller.ask(Submit(work=(work,), actor="plugin player"))
    await teller.pause(teller.random.choice((0.1, 1.0)))
