"""What the simulation plays of checks, while faults strike: some pass, some fail, some are lost with their worker."""

import msgspec

from interlock.core.plugin import Storyteller
from interlock.kernel.commands import Decide, Submit, Work


async def check_a_task(teller: Storyteller) -> None:
    """A workstream of one task, which is checked by jobs; one of them may fail."""
    failing = teller.random.random() < 0.3
    jobs = [
        {"task": "play", "input": '{"acts": [["step", 1]]}'},
        {"task": "play", "input": '{"acts": [["reject", 0]]}' if failing else '{"acts": []}'},
    ]
    options = {"checks": {"jobs": jobs, "in_order": teller.random.random() < 0.5}}
    work = (
        Work(task="stream", lifecycle="workstream", ref="all", options='{"checks": {"jobs": []}}'),
        Work(
            task="play", lifecycle="task", parent="all", input='{"acts": []}',
            options=msgspec.json.encode(options).decode(),
        ),
    )  # fmt: skip
    answer = await teller.ask(Submit(work=work, actor="plugin player"))
    if isinstance(answer, list):
        await teller.ask(Decide(unit=answer[0].unit, trigger="plan", actor="plugin player"))
    await teller.pause(teller.random.choice((0.1, 1.0, 3.0)))
