"""What the simulation plays of graphs: steps of one run that come in pages, in any order, and each page twice."""

import msgspec

from interlock.core.plugin import Storyteller
from interlock.kernel.commands import Submit, Work

STEPS, PAGE = 9, 3
ACTOR = "graph maker"
DONE, REJECTED = '{"acts": []}', '{"acts": [["reject", 0.1]]}'


async def send_a_graph_in_pages(teller: Storyteller) -> None:
    """A step needs the success or the end of earlier ones; some fail, and what needs them is stopped."""
    dice = teller.random
    made = await teller.ask(Submit(work=(Work(task="flow", lifecycle="workflow_run"),), actor=ACTOR))
    if isinstance(made, BaseException):
        return
    names = [f"n{number}" for number in range(STEPS)]
    steps = [
        Work(
            task="play", lifecycle="step", parent=made[0].unit, step=name, decides=False, attempts=2,
            input=dice.choice((DONE, DONE, REJECTED)),
            needs=tuple(dice.sample(names[:place], min(place, dice.randrange(3)))),
        )
        for place, name in enumerate(names)
    ]  # fmt: skip
    steps = [by_end(step) if dice.random() < 0.3 else step for step in steps]
    dice.shuffle(steps)
    for start in range(0, STEPS, PAGE):
        page = Submit(work=tuple(steps[start : start + PAGE]), actor=ACTOR)
        first = await teller.ask(page)
        again = await teller.ask(page)
        if isinstance(first, list) and isinstance(again, list):
            assert [each.unit for each in again] == [each.unit for each in first], "a name is one child"
        await teller.pause(dice.random())


def by_end(step: Work) -> Work:
    """The same step, for which the end of what it needs is enough."""
    return msgspec.structs.replace(step, needs=(), needs_end=step.needs)
