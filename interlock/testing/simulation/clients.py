"""Clients of a simulation: people, programs and raw workers that send commands."""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.audit.laws.incremental import CommitReview
from interlock.core.plugin import PluginQuery
from interlock.kernel.commands import (
    PERMANENT,
    Bury,
    Cancel,
    Claim,
    Command,
    Decide,
    DefineSchedule,
    Drain,
    Enter,
    Finish,
    Heartbeat,
    LeaseGrant,
    LeaseRef,
    LeaseStatus,
    Outcome,
    PauseSchedule,
    Record,
    Register,
    Release,
    Requeue,
    Rerun,
    SkipTask,
    Start,
    Submit,
    Vote,
    Work,
)
from interlock.kernel.errors import InterlockError, Unavailable, Unknown
from interlock.testing.simulation.faulty_store import HURRY
from interlock.testing.simulation.random_commands import Chance, make_decision, make_lease_ref
from interlock.testing.simulation.scenarios import PHASES, SECOND, lines, works
from interlock.testing.simulation.virtual_loop import Process

if TYPE_CHECKING:
    from interlock.testing.simulation.world import World

LONG_US = 5 * SECOND  # from here on, times of a story are as much shorter as the lifecycles
STRANGER = 2
IDLE = Work(task="play", input='{"acts": []}')
SPOKEN = (Claim, Start, Heartbeat, Finish, Release, Enter, Record)  # by workers


class Client:
    """Somebody who asks one thing at a time."""

    def __init__(self, world: "World", name: str) -> None:
        self.world, self.name, self.process = world, name, Process(name)
        self.random = random.Random(f"{name} {world.seed}")

    async def ask(self, command: Command[Any]) -> Any:
        """The answer, or the error that stands for it; what got none is asked again, sometimes."""
        for _ in range(3):
            (future,) = self.world.net.put_all(self.process, [command])
            try:
                return await asyncio.wrap_future(future)
            except Unavailable as error:
                if self.random.random() < 0.4:
                    return error
            except InterlockError as error:
                return error
        return Unavailable("asked three times")

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def read(self, query: PluginQuery, *args: Any) -> Any:
        """What a query says of the first tenant; None while no server is up."""
        up = [server for server in self.world.servers if server.process.alive and not server.process.frozen]
        return up[0].engine.see(query, 1, *args) if up else None


class PluginPlayer(Client):
    """Plays a story of a plugin, the one with this number."""

    async def run(self, number: int) -> None:
        await self.world.registry.stories[number](self)


class Submitter(Client):
    """Submits jobs that the real workers run, each with a script of what its handler does."""

    async def run(self, jobs: int) -> None:
        for number in range(jobs):
            command = self.submit(number)
            await self.ask(command)
            if command.idempotency_key is not None:
                await self.ask(command)  # whoever is not sure asks again
            await self.pause(self.random.choice((0.0, 0.05, 0.4)))

    def submit(self, number: int) -> Submit:
        if self.random.random() < 0.25:
            return self.workflow()
        key = f"{self.name}.{number}" if self.random.random() < 0.5 else None
        again = f"{self.name}.{number}" if self.random.random() < 0.3 else None
        return Submit(actor=self.name, work=(self.work(key=key),), idempotency_key=again)

    def work(self, **facts: Any) -> Work:
        draw = self.random.choice
        if draw((False,) * 23 + (True,)):  # fails again and again; but for its cap it would wait for ever
            return Work(
                task="play",
                input=self.script(("fail",)),
                attempts=44,
                backoff_us=1_000 * SECOND,
                backoff_cap_us=20_000,
                **facts,
            )
        named: dict[str, Any] = draw(({}, {}, {"mutex": "m"}, {"limit_key": "l", "limit": 2}))
        if draw((False,) * 5 + (True,)):
            named = {"rate_key": "r", "rate": 2, "rate_per_us": SECOND}
        return Work(
            task="play" if draw((True,) * 9 + (False,)) else "nobody", input=self.input(), priority=draw((0, 0, 1)),
            attempts=draw((None, 1, 2, 5)), timeout_us=draw((None, None, 2 * SECOND)), backoff_us=draw((None, 50_000)),
            delay_us=draw((0, 0, SECOND // 2)), exhausted=draw((None, "fail")), **named, **facts,
        )  # fmt: skip

    def input(self) -> str:
        if self.world.faults.strikes("poison", 0.15):
            return self.random.choice(('{"acts": 3}', "null", "[]", '{"acts": [], "more": 1}', '"\\u0000"'))
        if self.world.faults.strikes("poison", 0.3):
            return self.script((self.random.choice(("exit", "interrupt", "zero", "half", "mute", "long", "type")),))
        ends = ("", "", "", "", "fail", "permanent", "invalid", "reject", "snooze", "retry")
        return self.script((self.random.choice(ends),))

    def script(self, end: tuple[str, ...]) -> str:
        acts = ("sleep", "sleep", "step", "progress", "checkpoint", "artifact", "mind", "stubborn")
        times = (0.01, 0.1, 0.5, 1.5)
        some = [(self.random.choice(acts), self.random.choice(times)) for _ in range(self.random.randrange(3))]
        return msgspec.json.encode({"acts": [*some, *((work, 0.3) for work in end if work)]}).decode()

    def workflow(self) -> Submit:
        """A run of steps and approvals, one after the other."""
        run = [Work(task="flow", lifecycle="workflow_run", ref="r")]
        for place in range(self.random.randrange(1, 4)):
            needs = (f"s{place - 1}",) if place else ()
            lifecycle = self.random.choice(("step", "step", "approval"))
            own: dict[str, Any] = {"needs": needs, "parent": "r", "ref": f"s{place}", "lifecycle": lifecycle}
            run.append(self.work(**own) if lifecycle == "step" else Work(task="approval", quorum=1, **own))
        work = tuple(msgspec.structs.replace(work, task="play" if work.task == "nobody" else work.task) for work in run)
        return Submit(actor=self.name, work=work)


class Gambler(Client):
    """Sends anything that clients, raw workers, people and operators may send, in any order."""

    async def run(self, commands: int) -> None:
        chance = Chance(self.random.randrange(2**32), tag=f"{self.name}.")
        for command, wait in chance.commands(commands):
            actor = f"{self.name}'s hand" if isinstance(command, SPOKEN) else self.name
            command = msgspec.structs.replace(in_queue(command, "raw"), actor=actor)
            chance.learn(command, await self.ask(command))
            if wait:
                await self.pause(min(wait, 1.0) * 0.3)


def in_queue(command: Any, queue: str) -> Command[Any]:
    """The same for another queue, with answers that the caller's memory understands."""
    if isinstance(command, Submit):
        return msgspec.structs.replace(command, work=tuple(with_queue(work, queue) for work in command.work))
    if isinstance(command, Claim):
        return msgspec.structs.replace(command, queues=(queue,))
    checked: Command[Any] = command
    return checked


def with_queue(work: Work, queue: str) -> Work:
    """Returns work in another queue."""
    return msgspec.structs.replace(work, queue=queue)


class Player(Client):
    """Plays stories that together take every listed move; one that is refused is left where it stands."""

    grant: LeaseGrant

    async def run(self, stories: int) -> None:
        scenarios, first = lines(), (2 * self.world.seed + int(self.name[-1])) * stories
        for number in range(stories):
            self.queue = f"{self.name}.{number}"
            await self.play(scenarios[(first + number) % len(scenarios)])

    async def play(self, line: str) -> None:
        made, _, words = line.partition(":")
        self.worker = await self.ask(Register(name=self.queue, incarnation="1", capacity=9))
        work = tuple(hasten(work) for work in works(made.split(), self.queue))
        units = await self.ask(Submit(actor=self.name, work=work))
        if isinstance(units, BaseException) or isinstance(self.worker, BaseException):
            return
        self.units = [work.unit for work in units]
        for word in words.split():
            who, _, verb = word.rpartition(".")
            if verb.isdigit():
                await self.pause(scale_us(int(verb) * SECOND) / SECOND + 0.01)
            elif not await self.say(verb, who):
                return

    async def say(self, verb: str, who: str) -> bool:
        """Whether the word was heard."""
        if verb == "lose":
            await self.pause(max(0.0, (self.grant.until - self.world.now_us()) / SECOND) + 0.6)
            return True
        if verb == "endure":
            return await self.endure()
        if verb == "tick":
            await self.pause(0.6)
            return True
        if verb == "claim" and not who:
            return await self.claim()
        unit = self.units[{"run": 0, "2": 2}.get(who, len(self.units) > 1)]
        command = self.order(unit, verb) if who or verb not in self.words() else self.words()[verb]()
        answer = await self.ask(command)
        refused = isinstance(answer, list) and answer and isinstance(answer[0], LeaseStatus) and not answer[0].accepted
        return not refused and not isinstance(answer, BaseException)

    async def claim(self) -> bool:
        self.claims = getattr(self, "claims", 0) + 1
        name = f"{self.queue}.{self.claims}"
        for _ in range(3):  # what was lost may be waiting for its backoff
            answer = await self.ask(Claim(worker=self.worker, key=name, nonce=f"{name:0>16}", queues=(self.queue,)))
            if isinstance(answer, list) and answer:
                self.grant = answer[0]
                return True
            name += "+"
            await self.pause(0.5)
        return False

    async def endure(self) -> bool:
        for _ in range(8):
            await self.ask(Heartbeat(held=(make_lease_ref(self.grant),)))
            await self.pause(0.5)
        return True

    def words(self) -> dict[str, Callable[[], Command[Any]]]:
        """What a raw worker may say."""
        mine = (make_lease_ref(self.grant),) if hasattr(self, "grant") else ()

        def finish(**facts: Any) -> Callable[[], Command[Any]]:
            return lambda: Finish(outcomes=tuple(Outcome(held=work, **facts) for work in mine))

        def phase(name: str) -> Callable[[], Command[Any]]:
            return lambda: Enter(held=mine, phase=name)

        return {
            "start": lambda: Start(held=mine), "beat": lambda: Heartbeat(held=mine), "complete": finish(),
            "list": finish(result="[]"),
            "fail": finish(ended="failure"), "break": finish(ended="failure", error_class=PERMANENT),
            "stop": finish(ended="cancelled"), "release": lambda: Release(held=mine),
            "snooze": lambda: Release(held=mine, snooze_us=SECOND), "drain": lambda: Drain(worker=self.worker),
            **{name: phase(name) for name in PHASES},
        }  # fmt: skip

    def order(self, unit: int, verb: str) -> Command[Any]:
        """What people and operators do to a unit."""
        if verb in ("cancel", "hard"):
            return Cancel(unit=unit, hard=verb == "hard")
        if verb == "bury":
            return Bury(unit=unit, reason="policy_violation")
        if verb == "skip":
            return SkipTask(unit=unit)
        if verb == "again":
            return Rerun(unit=unit, failed=True)
        return make_decision(self.units[0] if verb == "plan" else unit, verb)


def scale_us(time_us: int) -> int:
    """Returns a time as much shorter as leases are, unless it is short anyway."""
    return time_us // HURRY if time_us >= LONG_US else time_us


def hasten(work: Work) -> Work:
    """The work of a story with its long times as much shorter as the lifecycles."""
    names = [name for name in work.__struct_fields__ if name.endswith("_us") and getattr(work, name)]
    return msgspec.structs.replace(work, **{name: scale_us(getattr(work, name)) for name in names})


class Stranger(Client):
    """Another tenant: it works in a queue of the same name, and tries what is not its own."""

    async def run(self, commands: int) -> None:
        mine: list[int] = []
        worker = await self.ask(Register(tenant=STRANGER, name="w", incarnation=self.name, capacity=9))
        for number in range(commands):
            made = await self.ask(Submit(tenant=STRANGER, actor=self.name, work=(IDLE,)))
            mine += [work.unit for work in made] if isinstance(made, list) else []
            if isinstance(worker, int):
                name = f"{self.name}.{number}"
                claim = Claim(tenant=STRANGER, worker=worker, key=name, nonce=f"{name:0>16}", limit=2)
                grants = await self.ask(claim)
                self.judge_grants(grants, mine)
            await self.trespass(mine)
            await self.pause(0.2)

    def judge_grants(self, grants: Any, mine: list[int]) -> None:
        for grant in grants if isinstance(grants, list) else ():
            unit = self.world.laws.units.get(grant.unit)
            if unit is not None and unit.tenant != STRANGER:
                self.world.add_violation(f"unit {unit.id} of tenant {unit.tenant} was granted to another tenant")

    async def trespass(self, mine: list[int]) -> None:
        others = [work for work, unit in self.world.laws.units.items() if unit.tenant != STRANGER]
        if not others:
            return
        unit = self.random.choice(others)
        tries: list[Command[Any]] = [
            Cancel(tenant=STRANGER, unit=unit), Decide(tenant=STRANGER, unit=unit, trigger="approve"),
            Bury(tenant=STRANGER, unit=unit, reason="timeout"), Requeue(tenant=STRANGER, unit=unit),
            Rerun(tenant=STRANGER, unit=unit),
            Vote(tenant=STRANGER, unit=unit, voter="x"), Drain(tenant=STRANGER, worker=unit),
        ]  # fmt: skip
        answer = await self.ask(command := self.random.choice(tries))
        if not isinstance(answer, Unknown | Unavailable):
            self.world.add_violation(f"another tenant sent {command}, and was answered with {answer!r}")
        await self.forge()

    async def forge(self) -> None:
        """Speaks for what others hold: with a secret that it has made up, and as another tenant."""
        live = [unit for unit in self.world.laws.units.values() if unit.holder and unit.tenant != STRANGER]
        if live:
            unit = self.random.choice(live)
            tenant = self.random.choice((unit.tenant, STRANGER))
            command = Heartbeat(tenant=tenant, actor=self.name, held=(LeaseRef(unit.id, unit.fence, "made up"),))
            answer = await self.ask(command)
            if isinstance(answer, list) and answer[0].accepted:
                self.world.add_violation(f"a made up lease was accepted: {command}")


class Poisoner(Client):
    """Submits units of which one is then broken in the store: whoever claims gets its neighbours all the same."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self.was_paused: set[int] = set()  # units that a pause, which may have ended since, kept from a claim
        world.on_commit.append(self.watch)

    def watch(self, review: CommitReview) -> None:
        for _, unit in review.changed:
            if unit is not None and (unit.parked_on or "").startswith("pause:"):
                self.was_paused.add(unit.id)

    async def run(self, rounds: int) -> None:
        for number in range(rounds):
            self.queue = f"{self.name}.{number}"
            work = msgspec.structs.replace(IDLE, queue=self.queue)
            made = await self.ask(Submit(actor=self.name, work=(work,) * 3))
            worker = await self.ask(Register(name=self.queue, incarnation="1", capacity=9))
            if not isinstance(made, BaseException) and not isinstance(worker, BaseException):
                broken, *sound = (work.unit for work in made)
                self.world.break_policy(broken)
                await self.claim(worker, broken, sound)

    async def claim(self, worker: int, broken: int, sound: list[int]) -> None:
        """A claim that is answered has left nothing behind that can be granted."""
        for place in range(6):
            name = f"{self.queue}.{place}"
            answer = await self.ask(
                Claim(worker=worker, key=name, nonce=f"nonce of {name}", limit=9, queues=(self.queue,))
            )
            if isinstance(answer, list):
                units = [self.world.laws.units[work] for work in sound]
                for unit in units:
                    if not unit.fence and unit.outcome is None and unit.id not in self.was_paused:
                        self.world.add_violation(f"unit {unit.id} was not granted, because unit {broken} cannot be")
                return
            await self.pause(0.3)


class Canceller(Client):
    """Cancels what has just moved, while that is a fault of the seed."""

    def watch(self, review: CommitReview) -> None:
        for _, unit in review.changed:
            if unit is not None and unit.lane and self.world.faults.strikes("cancel", 0.02):
                hard = self.random.random() < 0.5
                command = Cancel(tenant=unit.tenant, actor=self.name, unit=unit.id, hard=hard)
                self.world.net.put_all(self.process, [command])


class Timekeeper(Client):
    """Defines a schedule, and pauses it when the faults are over: else there would always be more to do."""

    async def run(self, _: int) -> None:
        overlap = self.random.choice(("skip", "queue", "replace", "allow"))
        await self.ask(DefineSchedule(name="s", timing="every 1s", work=IDLE, overlap=overlap))

    async def rest(self) -> None:
        while isinstance(await self.ask(PauseSchedule(name="s")), Unavailable):
            await self.pause(0.5)
