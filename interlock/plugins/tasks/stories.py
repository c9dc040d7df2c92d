"""What a client of the simulation does with tasks."""

import msgspec

from interlock.core.effective_policy import policy_of
from interlock.core.plugin import Storyteller
from interlock.kernel.commands import DefineTask, Planned, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.parameters import Parameter
from interlock.store.queries.views import view

TASK = "ruled"
ATTEMPTS = (2, 3, 4)


async def define_and_submit(teller: Storyteller) -> None:
    """Defines versions of a task, and submits jobs that leave its rules out, or say one, or have wrong arguments."""
    defined = False
    for attempts in teller.random.sample(ATTEMPTS, len(ATTEMPTS)):
        rules = Work(task=TASK, queue=TASK, attempts=attempts)
        command = DefineTask(work=rules, parameters=(Parameter("n", ("integer",)),), actor="definer")
        defined = isinstance(await teller.ask(command), Planned) or defined
        await teller.pause(teller.random.choice((0.0, 0.5)))
        work = Work(task=TASK, input='{"n": 1}')
        made = await teller.ask(Submit(work=(work, msgspec.structs.replace(work, attempts=9)), actor="submitter"))
        wrong = await teller.ask(Submit(work=(Work(task=TASK, input='{"m": 1}'),), actor="submitter"))
        if not defined:
            continue
        assert isinstance(wrong, InterlockError), f"wrong arguments were taken: {wrong}"
        for job, expected in zip(made if isinstance(made, list) else (), (ATTEMPTS, (9,)), strict=False):
            row = teller.read(view, job.unit)
            assert row is None or policy_of(row.body).attempts in expected, f"{row.body.policy} are not the rules"
            assert row is None or row.queue == TASK, f"{row.queue} is not the queue of the task"
