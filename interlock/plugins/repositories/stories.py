"""What the simulation plays of repositories, while faults strike: tasks whose commits are merged one after another."""

from hashlib import sha1
from typing import Any

import msgspec

from interlock.core.plugin import Storyteller
from interlock.kernel.commands import (
    Claim,
    Decide,
    Finish,
    LeaseGrant,
    LeaseRef,
    Outcome,
    Register,
    Start,
    Submit,
    Work,
)
from interlock.plugins.repositories.options import CLEANING, MERGE, MERGING, RepositoryOrder, read_order

TASKS, CLAIMS = 3, 12
PAUSES = (0.0, 0.5, 6.0)  # seconds; after the longest one a lease may be over
CONFLICTS = 0.1  # so many merges fail for good


async def merge_a_workstream(teller: Storyteller) -> None:
    """Plays workers that serve one repository; the laws compare what was merged with what was accepted."""
    number = f"{teller.random.getrandbits(40):x}"
    queue, repo = f"repo-{number}", f"site-{number}"
    merge = {"task": MERGE, "input": '{"onto": "main"}'}
    own = {"repositories": {"repo": repo}, "checks": {"jobs": [merge]}}
    options = msgspec.json.encode(own).decode()
    stream = Work(task="stream", lifecycle="workstream", ref="all", queue=queue, options=options)
    tasks = [Work(task="edit", lifecycle="task", parent="all", queue=queue, step=f"t{n}") for n in range(TASKS)]
    answer = await teller.ask(Submit(work=(stream, *tasks), actor="plugin player"))
    if not isinstance(answer, list):
        return
    await teller.ask(Decide(unit=answer[0].unit, trigger="plan", actor="plugin player"))
    worker = await teller.ask(
        Register(name=f"repo-{number}", incarnation="1", capacity=4, capabilities=(f"repo:{repo}",))
    )  # fmt: skip
    if not isinstance(worker, int):
        return
    for claim in range(CLAIMS):
        key = f"{number}.{claim}"
        grants = await teller.ask(Claim(worker=worker, key=key, nonce=f"{key:0>32}", queues=(queue,), limit=2))
        merges = 0
        for grant in grants if isinstance(grants, list) else ():
            order = read_order(grant.options)
            assert order is not None, f"{grant} was handed over without its repository"
            assert order.repo == repo, f"{grant} has another repository than its workstream"
            merges += order.role == MERGING
            await teller.ask(Start(held=(LeaseRef(grant.unit, grant.fence, grant.lease),)))
            await teller.pause(teller.random.choice(PAUSES))
            await teller.ask(Finish(outcomes=(make_outcome(teller, grant, order),)))
        assert merges <= 1, "two merges into one workstream were granted at a time"
        await teller.pause(0.2)


def make_outcome(teller: Storyteller, grant: LeaseGrant, order: RepositoryOrder) -> Outcome:
    """Ends an attempt as a worker does, with commits that are made up: each is the digest of its parents."""
    held = LeaseRef(grant.unit, grant.fence, grant.lease)
    if order.role == MERGING and teller.random.random() < CONFLICTS:
        return Outcome(held=held, ended="failure", error="it conflicts", error_class="PermanentError")
    return Outcome(held=held, result=msgspec.json.encode(make_result(grant, order)).decode())


def make_result(grant: LeaseGrant, order: RepositoryOrder) -> dict[str, Any]:
    """Makes the result of a job on a repository."""
    if order.role == CLEANING:
        return {"removed": 0, "kept": []}
    base = order.head or make_commit(order.name)
    if order.role != MERGING:
        return {"commit": make_commit(base, str(grant.unit), str(grant.fence))}
    merged = base if order.onto else msgspec.json.decode(dict(grant.outputs or ())["result"])["commit"]
    return {"commit": make_commit(base, merged), "merged": merged, "base": base}


def make_commit(*parents: str) -> str:
    """Makes up the name of a commit."""
    return sha1("".join(parents).encode(), usedforsecurity=False).hexdigest()
