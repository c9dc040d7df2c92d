"""Run one seed to its end: faults happen, then everything is repaired, and all work that was begun must end."""

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from interlock.audit.laws.incremental import CommitReview
from interlock.core.plugin import Registry
from interlock.kernel.commands import Cancel, Command, Decide, Standing
from interlock.kernel.lifecycle import Category, Owner
from interlock.kernel.rows import Unit
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD
from interlock.store.queries.views import view
from interlock.testing.simulation.clients import (
    STRANGER,
    Canceller,
    Client,
    Gambler,
    Player,
    PluginPlayer,
    Poisoner,
    Stranger,
    Submitter,
    Timekeeper,
)
from interlock.testing.simulation.feed_reader import FeedReader
from interlock.testing.simulation.histories import find_broken_histories
from interlock.testing.simulation.net import Op
from interlock.testing.simulation.record import RecordedStep
from interlock.testing.simulation.scenarios import Move
from interlock.testing.simulation.server import QUEUES
from interlock.testing.simulation.state_files import RESTORES, StateWriter, has_state_files, restore_elsewhere
from interlock.testing.simulation.virtual_loop import Process, Stuck
from interlock.testing.simulation.workers import SimulatedWorkers
from interlock.testing.simulation.world import World, silence_logs

FAULTY = 14.0  # seconds in which faults strike, at most
ROUNDS = 90  # seconds in which everything must have ended once they are over
FORCED = 6  # seconds after which what is still open is cancelled
ON_FILE = 12  # one seed of so many has its store in a file
TIMELY, OVERDUE_US = 12, 5_000_000  # rounds after which no clock may be as late as that
POISONED = 3  # one seed of so many has units in it that nobody can grant
REVOKED = {move.path[-1] for move in shipped()["lease"].moves.values() if move.trigger == "revoke"}  # leases that were
UNITS, LEAST = 35, 200  # units, workers included, and commands of a seed
STORIES = 3  # of each player; the seeds take turns with all that there are
YES = ("plan", "approve", "valid", "report")
PEOPLE = (Owner.PERSON, Owner.VALIDATOR, Owner.REPORTER)


class Report(msgspec.Struct):
    """What came of a seed. `moves` are those taken, `cells` those taken while a kind of fault could strike."""

    seed: int
    hash: str
    kinds: tuple[str, ...]
    commands: int
    units: int
    transitions: int
    seconds: float  # of virtual time
    late: int  # effects that the sink refused
    struck: Counter[str]
    moves: Counter[Move]
    cells: Counter[tuple[Move, str]]
    violations: list[str]
    steps: list[RecordedStep] = []


def simulate(
    seed: int, *, kinds: Sequence[str] | None = None, keep_steps: bool = False, registry: Registry = STANDARD
) -> Report:
    """One life of a whole system. `kinds` are the faults that may strike, else the seed draws them.

    The stories of the plugins of `registry` are played too, and their laws are asked.
    """
    with silence_logs(), tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "simulated.db" if seed % ON_FILE == 0 else None
        world = World(seed, None if kinds is None else tuple(kinds), file, registry)
        try:
            world.loop.run_until_complete(Play(world).run())
        except Stuck as stuck:
            world.add_violation(str(stuck))
        finally:
            units = sum(1 for unit in world.laws.units.values() if unit.lane)
            world.close()
        world.violations += find_broken_histories(world.net.history, steady="clock" not in world.faults.on)
        world.violations += [f"{error!r} was raised where nobody waits" for error in world.loop.broken]
    return Report(
        seed=seed, hash=world.sums.hexdigest(), kinds=tuple(sorted(world.faults.on)), commands=world.commands,
        units=units, transitions=world.transitions, seconds=round(world.loop.now, 6), late=world.sink.late,
        struck=world.faults.struck, moves=world.moves, cells=world.cells, violations=world.violations,
        steps=world.record.steps if keep_steps else [],
    )  # fmt: skip


class Play:
    """Who takes part, and in which order things happen to them."""

    def __init__(self, world: World) -> None:
        self.world, self.random = world, random.Random(f"play {world.seed}")
        self.workers = [
            SimulatedWorkers(world, f"worker {n}", {"default": 3}) for n in range(self.random.choice((1, 2)))
        ]
        self.timekeeper = Timekeeper(world, "timekeeper") if self.random.random() < 0.2 else None
        self.canceller = Canceller(world, "canceller")
        self.feed_reader = FeedReader(world)
        self.state_writer = StateWriter(world) if has_state_files(world) else None
        world.on_commit += [self.canceller.watch, self.feed_reader.watch]
        world.on_commit += [self.state_writer.watch] if self.state_writer else []
        if not world.faults.on:
            world.on_commit.append(self.judge_calm)

    def judge_calm(self, row: CommitReview) -> None:
        """While nothing goes wrong, no worker loses what it holds, unless somebody takes it away."""
        mine = {unit_id.worker.id for unit_id in self.workers}
        for was, unit in row.changed:
            if was and unit and was.holder in mine and unit.losses > was.losses and unit.lease not in REVOKED:
                self.world.add_violation(f"unit {unit.id} was lost to its worker, although nothing went wrong")

    def clients(self) -> list[tuple[Any, int]]:
        """Those who ask for things, and how much each of them asks for."""
        world, some = self.world, self.random.choice
        clients: list[tuple[Any, int]] = [
            (Submitter(world, "submitter"), some((5, 8))),
            (Gambler(world, "gambler"), some((20, 35))),
            (Player(world, "player 0"), STORIES),
            (Player(world, "player 1"), STORIES),
            (Stranger(world, "stranger"), 3),
        ]
        if world.seed % POISONED == 1:
            clients.append((Poisoner(world, "poisoner"), 2))
        clients += [
            (PluginPlayer(world, f"plugin player {number}"), number) for number in range(len(world.registry.stories))
        ]
        return [*clients, (self.timekeeper, 1)] if self.timekeeper else clients

    async def run(self) -> None:
        tasks = [self.begin(client, client.run(number)) for client, number in self.clients()]
        disturbing = asyncio.create_task(self.disturb())
        _, late = await asyncio.wait(tasks, timeout=FAULTY)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        disturbing.cancel()
        for task in tasks:
            if not task.cancelled() and (error := task.exception()):
                self.world.add_violation(f"a client broke: {error!r}")
        await self.heal()
        await self.fill(LEAST // 2)
        await self.close()
        if self.world.commands < LEAST:
            await self.fill(LEAST)
            await self.close()
        await asyncio.gather(*(unit_id.end(30.0) for unit_id in self.workers))
        self.feed_reader.judge()
        if self.state_writer:
            self.state_writer.judge()
            if self.world.seed % RESTORES == 0:
                restore_elsewhere(self.world)

    def begin(self, client: Client, doing: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = self.world.loop.create_task(doing, context=client.process.context)
        return task

    # Faults of processes and of time.

    async def disturb(self) -> None:
        reader = Client(self.world, "reader")
        while True:
            await asyncio.sleep(0.25)
            self.read(reader)
            faults, everybody = self.world.faults, self.everybody()
            if faults.strikes("crash_await", 0.1):
                process = self.random.choice(everybody)
                process.dies_at = process.steps + self.random.randrange(1, 150)
            if faults.strikes("pause", 0.08):
                process = self.random.choice(everybody)
                process.frozen = True
                self.world.net.later(self.random.choice((0.5, 3.5, 6.0)), self.world.loop.thaw, process)
            if faults.strikes("clock", 0.1):
                self.world.skew_us += round(1_000_000 * self.random.choice((-2.0, -0.3, 0.7, 4.0, 15.0)))

    def everybody(self) -> list[Process]:
        return [unit_id.process for unit_id in self.world.servers] + [unit_id.process for unit_id in self.workers]

    def read(self, reader: Client) -> None:
        """Somebody looks at a unit; what is seen must fit what everybody else was told."""
        known = [unit.id for unit in self.world.laws.units.values() if unit.lane and unit.tenant != STRANGER]
        server = reader.random.choice(self.world.servers)
        if not known or not server.process.alive or server.process.frozen:
            return
        unit_id = reader.random.choice(known[-30:])
        row = server.engine.read(lambda connection: view(connection, 1, unit_id)).unit
        net = self.world.net
        net.clock += 2
        answer = Standing(unit=unit_id, state=row.state, version=row.version, applied=False)
        net.history.append(Op(Cancel(unit=unit_id), net.clock - 1, net.clock, answer))

    # Healing.

    async def heal(self) -> None:
        """Nothing goes wrong any more, and everybody is there."""
        self.world.faults.healed = True
        for process in self.everybody():
            process.dies_at = 0
            self.world.loop.thaw(process)
        if self.timekeeper:
            await self.begin(self.timekeeper, self.timekeeper.rest())
        self.workers.append(SimulatedWorkers(self.world, "janitor", {"default": 8, "raw": 8}))

    async def fill(self, commands: int) -> None:
        """Faults may have kept the clients from much: what is missing of a whole seed is asked for now."""
        units, number = UNITS - len(self.world.laws.units), commands - self.world.commands
        if units > 0:
            client = Submitter(self.world, f"submitter of {commands}")
            await self.begin(client, client.run(units))
        if number > 0:
            gambler = Gambler(self.world, f"gambler of {commands}")
            await self.begin(gambler, gambler.run(number))

    async def close(self) -> None:
        """Everything that was begun has ended within the bound."""
        closer = Client(self.world, "closer")
        for number in range(ROUNDS):
            left = self.open_units()
            if not left:
                break
            if number > TIMELY:
                self.judge_time()
            commands = [command for unit in left if (command := self.verdict(unit, number))]
            if commands:
                futures = self.world.net.put_all(closer.process, commands)
                await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
            await asyncio.sleep(0.5 if number < 2 * FORCED else 1.5)
        for unit in self.open_units():
            self.world.add_violation(f"unit {unit.id}, a {unit.lifecycle}, is still {unit.state} in the end: {unit}")

    def judge_time(self) -> None:
        """Once nothing goes wrong any more, whatever is due is looked at soon, whosever it is."""
        late = self.world.now_us() - OVERDUE_US
        for unit in self.world.laws.units.values():
            if unit.wake_at is not None and unit.wake_at < late and unit.id not in self.world.poisoned:
                self.world.add_violation(
                    f"unit {unit.id} of tenant {unit.tenant} was due at {unit.wake_at}, and time stands"
                )

    def open_units(self) -> list[Unit]:
        return [unit for unit in self.world.laws.units.values() if unit.lane and unit.outcome is None]

    def verdict(self, unit: Unit, number: int) -> Command[Any] | None:
        """What helps a unit to its end: a yes, or in the end a cancel."""
        lifecycle = self.world.lifecycles[unit.lifecycle]
        # Whoever was to add the tasks that a workstream expects may have been stopped: then no yes helps it.
        is_forsaken = unit.parent is None and unit.category == Category.WAITING and number > 2 * FORCED
        for trigger in () if is_forsaken else YES:
            move = lifecycle.moves.get((unit.state, trigger))
            if move and move.owner in PEOPLE and unit.tenant != STRANGER:
                return Decide(unit=unit.id, trigger=trigger, actor="closer")
        served = unit.lane in self.served_lanes() and unit.tenant != STRANGER
        if unit.parent is None and (not served or number > 2 * FORCED):
            return Cancel(tenant=unit.tenant, unit=unit.id, hard=True, actor="closer", reason="it is over")
        return None

    def served_lanes(self) -> set[int]:
        known = [server.engine.wakeups.lanes for server in self.world.servers]
        return {lane for lanes in known for lane, queue in lanes.items() if queue[1] in QUEUES}
