"""What a client of the simulation does with commands."""

import msgspec

from interlock.core.plugin import Storyteller
from interlock.kernel.commands import Claim, Finish, LeaseRef, Outcome, Register, Start, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.plugins.shell.options import SHELL, ShellOptions, encode_shell, read_shell

QUEUE = "commands"
PAUSES = (0.0, 1.0, 6.0)  # seconds; after the longest one a lease may be over


async def claim_commands(teller: Storyteller) -> None:
    """Submits a command; a worker that runs none claims in vain, and one that does gets what it is to run."""
    work = Work(
        task=SHELL, queue=QUEUE, capabilities=(SHELL,), options=encode_shell(ShellOptions(command="make test"))
    )  # fmt: skip
    await teller.ask(Submit(work=(work,), actor="submitter"))
    refused = await teller.ask(Submit(work=(msgspec.structs.replace(work, capabilities=()),), actor="submitter"))
    assert isinstance(refused, InterlockError), f"a command for any worker was taken: {refused}"
    name = f"{teller.random.getrandbits(40):x}"
    for capabilities in ((), (SHELL,)):
        own = f"{name}-{len(capabilities)}"
        worker = await teller.ask(Register(name=own, incarnation="1", capacity=4, capabilities=capabilities))
        if not isinstance(worker, int):
            return
        grants = await teller.ask(Claim(worker=worker, key=own, nonce=f"{own:0>32}", queues=(QUEUE,), limit=2))
        for grant in grants if isinstance(grants, list) else ():
            assert capabilities, f"{grant} was handed to a worker that runs no commands"
            assert read_shell(grant.options) == ShellOptions(command="make test"), f"{grant} has another command"
            held = LeaseRef(grant.unit, grant.fence, grant.lease)
            await teller.ask(Start(held=(held,)))
            await teller.pause(teller.random.choice(PAUSES))
            await teller.ask(Finish(outcomes=(Outcome(held=held, result='{"exit_code": 0}'),)))
