"""What the simulation plays of CI runs, while faults strike: plans, some that fail, and jobs that fail by a class."""

import msgspec

from interlock.core.plugin import Storyteller
from interlock.kernel.commands import (
    Cancel,
    Claim,
    Enter,
    Finish,
    LeaseGrant,
    LeaseRef,
    Outcome,
    Plan,
    Record,
    Register,
    Start,
    Submit,
    Work,
)
from interlock.plugins.ci.failures import Sight
from interlock.plugins.ci.junit import CiTest
from interlock.plugins.ci.options import JOB, NOBODY, RUN, CiOptions, encode_options
from interlock.plugins.ci.queries import list_ci_jobs, read_ci_run
from interlock.plugins.ci.results import SIGHT, TESTS

SOON_US = 20_000_000  # so that what nobody goes on with ends
PAUSES = (0.0, 0.5, 6.0)  # seconds
SIGHTS = (
    Sight(stage="checkout", summary="no disk"), Sight(step="go", exit_code=1), Sight(step="go", stopped="time"),
    Sight(step="go", signal="SIGKILL"),
)  # fmt: skip


async def plan_and_run(teller: Storyteller) -> None:
    """A run is planned, perhaps twice, and its jobs are run by a runner that may vanish."""
    name = f"ci-{teller.random.getrandbits(40):x}"
    run = Work(
        task="ci.run", lifecycle=RUN, queue=name, settle=teller.random.choice(("first", "all")),
        plan_timeout_us=SOON_US, queue_timeout_us=SOON_US, timeout_us=SOON_US,
        options=encode_options(CiOptions(report_to=NOBODY)),
    )  # fmt: skip
    made = await teller.ask(Submit(work=(run,), actor="ci"))
    if not isinstance(made, list):
        return
    unit = made[0].unit
    if teller.random.random() < 0.2:
        await teller.ask(Cancel(unit=unit, actor="ci"))
    failed = "no config" if teller.random.random() < 0.2 else ""
    plan = Plan(unit=unit, work=() if failed else make_jobs(name), plan='{"hash": "1"}', failed=failed, actor="ci")
    for _ in range(teller.random.randrange(1, 3)):
        await teller.ask(plan)
    row, jobs = teller.read(read_ci_run, unit), teller.read(list_ci_jobs, unit)
    assert not (row and failed and jobs), f"{row} has jobs though its plan has failed"
    worker = await teller.ask(Register(name=name, incarnation="1", capacity=4))
    for attempt in range(4) if isinstance(worker, int) else ():
        key = f"{name}.{attempt}"
        grants = await teller.ask(Claim(worker=worker, key=key, nonce=f"{key:0>32}", queues=(name,), limit=2))
        for grant in grants if isinstance(grants, list) else ():
            await run_attempt(teller, grant)


def make_jobs(queue: str) -> tuple[Work, ...]:
    """A job, one that needs it, and one that may fail."""

    def make(name: str, *needs: str, decides: bool = True) -> Work:
        own = CiOptions(job=name, fingerprint=f"{queue}.{name}", retries={"runner": 1})
        return Work(
            task="ci.job", lifecycle=JOB, queue=queue, ref=name, step=name, needs=needs, decides=decides, attempts=2,
            losses=2, options=encode_options(own),
        )  # fmt: skip

    return make("build"), make("test", "build"), make("lint", decides=False)


async def run_attempt(teller: Storyteller, grant: LeaseGrant) -> None:
    """A runner says what it saw, and then how it ended; or nothing more."""
    held = LeaseRef(grant.unit, grant.fence, grant.lease)
    await teller.ask(Start(held=(held,)))
    await teller.ask(Enter(held=(held,), phase="run"))
    await teller.pause(teller.random.choice(PAUSES))
    if teller.random.random() < 0.2:
        return
    tests = msgspec.json.encode([CiTest("a", "passed", 1)]).decode()
    await teller.ask(Record(held=(held,), kind="step", name=f"{TESTS}1", payload=tests))
    if teller.random.random() < 0.6:
        await teller.ask(Finish(outcomes=(Outcome(held=held),)))
        return
    sight = msgspec.json.encode(teller.random.choice(SIGHTS)).decode()
    await teller.ask(Record(held=(held,), kind="step", name=SIGHT, payload=sight))
    await teller.ask(Finish(outcomes=(Outcome(held=held, ended="failure", error="it failed"),)))
