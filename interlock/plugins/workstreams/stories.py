"""What the simulation plays of workstreams while faults strike: tasks are added, retried, skipped and mapped."""

from typing import Any

import msgspec

from interlock.core.plugin import Storyteller
from interlock.kernel.commands import (
    AddTasks,
    Claim,
    Finish,
    LeaseRef,
    Outcome,
    PauseWork,
    ReassignTask,
    Register,
    Rerun,
    RetryTask,
    SkipTask,
    Submit,
    UnpauseWork,
    Work,
)
from interlock.kernel.errors import Unavailable
from interlock.plugins.workstreams.queries import list_named_tasks

ACTOR = "workstream player"
DONE, REJECTED, FAILED = '{"acts": []}', '{"acts": [["reject", 0.1]]}', '{"acts": [["fail", 0.1]]}'
SECOND_US = 1_000_000
TURNS = 6


def make_task(parent: int | str, name: str, **facts: Any) -> Work:
    """A task that passes its gate at once; some of its options are the plugin's own."""
    own = {"checks": {"jobs": []}, "workstreams": facts.pop("own", {})}
    return Work(
        task="play", lifecycle="task", parent=parent, step=name, options=msgspec.json.encode(own).decode(),
        **{"input": DONE, "attempts": 2, **facts},
    )  # fmt: skip


def make_stream(**own: Any) -> Work:
    """Makes the work of a workstream."""
    options = {"checks": {"jobs": []}, "workstreams": own}
    return Work(task="stream", lifecycle="workstream", ref="ws", options=msgspec.json.encode(options).decode())


async def insist(teller: Storyteller, command: Submit) -> Any:
    """Asks until there is an answer: a workstream that expects tasks waits for them for ever."""
    answer: Any = Unavailable("not asked yet")
    for _ in range(60):
        answer = await teller.ask(command)
        if not isinstance(answer, Unavailable):
            break
        await teller.pause(1)
    return answer


async def add_in_pages(teller: Storyteller) -> None:
    """A workstream gets the tasks that it expects in pages, some twice, then one too many, then some more."""
    dice = teller.random
    stream = msgspec.structs.replace(make_stream(expects=4, at_once=2), key=f"pages.{dice.randrange(10**9)}")
    made = await insist(teller, Submit(work=(stream,), actor=ACTOR))
    if isinstance(made, BaseException):
        return
    ws = made[0].unit
    tasks = [make_task(ws, f"t{number}", needs=(f"t{number - 1}",) if number % 2 else ()) for number in range(4)]
    dice.shuffle(tasks)
    for page in (tasks[:2], tasks[:3], tasks[2:]):
        await teller.ask(Submit(work=tuple(page), actor=ACTOR))
        await teller.pause(dice.random())
    await insist(teller, Submit(work=tuple(tasks), actor=ACTOR))  # what came before adds nothing
    await teller.ask(Submit(work=(make_task(ws, "more", needs=("t1",)),), actor=ACTOR))
    await change_tasks(teller, ws)


async def add_under_a_lease(teller: Storyteller) -> None:
    """The holder of a task adds tasks to its workstream, more than once, and once too late."""
    queue = f"adds.{teller.random.randrange(10**9)}"
    worker = await teller.ask(Register(name=queue, incarnation="1", capacity=9, actor=ACTOR))
    made = await teller.ask(
        Submit(work=(make_stream(), make_task("ws", "first", queue=queue, attempts=9)), actor=ACTOR)
    )
    if isinstance(made, BaseException) or not isinstance(worker, int):
        return
    for turn in range(TURNS):
        key = f"{queue}.{turn}"
        grants = await teller.ask(Claim(worker=worker, key=key, nonce=f"{key:0>16}", queues=(queue,), actor=ACTOR))
        for grant in grants if isinstance(grants, list) else ():
            held = LeaseRef(grant.unit, grant.fence, grant.lease)
            more = (make_task(made[0].unit, "second", needs=("first",)), make_task(made[0].unit, "third"))
            await teller.ask(AddTasks(lease=held, work=more, actor=ACTOR))
            await teller.pause(teller.random.random())
            await teller.ask(AddTasks(lease=held, work=more, actor=ACTOR))
            await teller.ask(Finish(outcomes=(Outcome(held=held),), actor=ACTOR))
            late = await teller.ask(AddTasks(lease=held, work=(make_task(made[0].unit, "late"),), actor=ACTOR))
            assert isinstance(late, BaseException), "who holds a task no more adds none"
        await teller.pause(1)


async def change_a_graph(teller: Storyteller) -> None:
    """Tasks of a graph fail, and are retried, skipped, reassigned; the whole is paused for a while, and rerun."""
    dice = teller.random
    works = [make_stream(at_once=dice.choice((None, 2)))]
    for number in range(6):
        needs = tuple(dice.sample([f"t{other}" for other in range(number)], min(number, dice.randrange(3))))
        works.append(
            make_task(
                "ws", f"t{number}", needs=needs, decides=dice.random() < 0.2,
                input=dice.choice((DONE, DONE, REJECTED, FAILED)), own={"allow_failure": dice.random() < 0.3},
            )
        )  # fmt: skip
    made = await teller.ask(Submit(work=tuple(works), actor=ACTOR))
    if isinstance(made, BaseException):
        return
    ws = made[0].unit
    if dice.random() < 0.5:
        await teller.ask(PauseWork(unit=ws, for_us=dice.randrange(1, 3) * SECOND_US, actor=ACTOR))
    await change_tasks(teller, ws)
    await teller.ask(UnpauseWork(unit=ws, actor=ACTOR))
    await teller.pause(2)
    again = await teller.ask(Rerun(unit=ws, failed=dice.random() < 0.7, actor=ACTOR))
    if not isinstance(again, BaseException):
        await change_tasks(teller, again.unit)


async def map_a_list(teller: Storyteller) -> None:
    """A map goes over what a task came to; what it makes may fail, and be retried."""
    dice = teller.random
    works = (
        make_stream(),
        make_task("ws", "fetch", input=f'{{"acts": [["list", {dice.choice((3, 3, 4))}]]}}'),
        make_task(
            "ws", "each", needs=("fetch",), decides=False,
            own={"map": {"over": dice.choice((*["fetch"] * 3, "fetch.none")), "argument": "acts", "at_once": 2}},
        ),
        make_task("ws", "after", needs=("each",)),
        make_task("ws", "beside", input='{"acts": [["sleep", 1.5]]}'),
    )  # fmt: skip
    made = await teller.ask(Submit(work=works, actor=ACTOR))
    if not isinstance(made, BaseException):
        await change_tasks(teller, made[0].unit)


async def change_tasks(teller: Storyteller, ws: int) -> None:
    """An operator changes what there is of a workstream, a few times."""
    for _ in range(TURNS):
        await teller.pause(teller.random.random())
        tasks = teller.read(list_named_tasks, ws) or []
        for task in tasks:
            if task.outcome in ("failure", "cancelled"):
                await teller.ask(RetryTask(unit=task.unit, actor=ACTOR))
            elif task.held and teller.random.random() < 0.2:
                await teller.ask(ReassignTask(unit=task.unit, actor=ACTOR))
            elif task.outcome is None and teller.random.random() < 0.1:
                await teller.ask(SkipTask(unit=task.unit, actor=ACTOR))


STORIES = (add_in_pages, add_under_a_lease, change_a_graph, map_a_list)
