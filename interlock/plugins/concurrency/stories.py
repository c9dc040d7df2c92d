"""What the simulation plays of resources: jobs that need several of them, and workers that are lost with them."""

from interlock.core.plugin import Storyteller
from interlock.kernel.commands import (
    Cancel,
    Claim,
    Finish,
    LeaseGrant,
    LeaseRef,
    Outcome,
    Register,
    Release,
    Resource,
    Start,
    Submit,
    Work,
)
from interlock.plugins.concurrency.queries import read_resource_slots
from interlock.store.connection import Connection

SECOND_US = 1_000_000
ACTOR = "plugin player"
JOBS, BOOTS, TURNS = 8, 3, 3
# Every job says the same of how many there are, so that never more may be taken.
ROOMS = tuple(Resource(name, mode) for name in ("kiln", "hall") for mode in ("exclusive", "shared"))
TOOLS = tuple(Resource("saw", "counted", n, 3) for n in (1, 2, 3))
PERMITS = (Resource("permit", "rated", 2, per_us=SECOND_US),)
ENDS = ("finish", "fail", "release", "cancel", "vanish", "vanish")


async def share_resources(teller: Storyteller) -> None:
    """Jobs that use resources alone, together, in part and so often; their workers end some of them, and are lost."""
    dice = teller.random
    queue = f"tools.{dice.randrange(10**9)}"
    for _ in range(JOBS // 2):
        work = tuple(draw_job(teller, dice.choice((queue, queue, "default"))) for _ in range(2))
        await teller.ask(Submit(work=work, actor=ACTOR))
    for boot in range(BOOTS):
        worker = await teller.ask(Register(name=queue, incarnation=str(boot), capacity=9, actor=ACTOR))
        for turn in range(TURNS) if isinstance(worker, int) else ():
            key = f"{queue}.{boot}.{turn}"
            claim = Claim(worker=worker, key=key, nonce=f"{key:0>32}", queues=(queue,), limit=3, actor=ACTOR)
            grants = await teller.ask(claim)
            overfull = teller.read(list_overfull)
            assert not overfull, f"more is taken of {overfull} than there is"
            for grant in grants if isinstance(grants, list) else ():
                await use_or_vanish(teller, grant)
            await teller.pause(dice.choice((0.0, 0.5)))


def draw_job(teller: Storyteller, queue: str) -> Work:
    """A job that needs some of all the resources, in any order."""
    dice = teller.random
    uses = [dice.choice(ROOMS[:2]), dice.choice(ROOMS[2:]), dice.choice(TOOLS), *PERMITS]
    resources = tuple(dice.sample(uses, dice.randrange(1, len(uses) + 1)))
    return Work(
        task="play", queue=queue, resources=resources, priority=dice.randrange(3), attempts=3,
        input=dice.choice(('{"acts": []}', '{"acts": [["sleep", 0.5]]}', '{"acts": [["snooze", 0.2]]}')),
    )  # fmt: skip


async def use_or_vanish(teller: Storyteller, grant: LeaseGrant) -> None:
    """A job ends in one of all ways, or nobody hears of its worker again."""
    held, end = LeaseRef(grant.unit, grant.fence, grant.lease), teller.random.choice(ENDS)
    if teller.random.random() < 0.7:
        await teller.ask(Start(held=(held,), actor=ACTOR))
    if end == "finish":
        await teller.ask(Finish(outcomes=(Outcome(held=held),), actor=ACTOR))
    elif end == "fail":
        await teller.ask(Finish(outcomes=(Outcome(held=held, ended="failure", error="as asked"),), actor=ACTOR))
    elif end == "release":
        await teller.ask(Release(held=(held,), actor=ACTOR))
    elif end == "cancel":
        await teller.ask(Cancel(unit=grant.unit, hard=True, actor=ACTOR))


def list_overfull(connection: Connection, tenant: int) -> list[str]:
    """The resources of a tenant of which more is taken than there is."""
    slots = read_resource_slots(connection)
    return [key for owner, key, capacity, taken in slots if owner == tenant and taken > capacity]
