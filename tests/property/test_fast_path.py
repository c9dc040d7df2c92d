"""The fast path and the verbs come to the same: random commands, once with the fast path and once without it.

Answers, rows, events and leases are equal. Which units share an act may differ, because the fast path writes its own.
"""

from pathlib import Path
from typing import Any

import pytest

from interlock.audit.laws import audit
from interlock.core import fast_path
from interlock.core.committer import Committer
from interlock.kernel.commands import (
    Cancel,
    Claim,
    Command,
    Finish,
    Heartbeat,
    LeaseGrant,
    LeaseRef,
    Outcome,
    Record,
    Register,
    SetTenant,
    Start,
    Submit,
    Work,
)
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import shipped
from interlock.testing.simulation.random_commands import WAITS, Chance, make_lease_ref
from tests.engine.test_random_commands import ask_together, everything, plain, share_hints
from tests.engine.world import World
from tests.store.databases import declare, fresh

DATABASES = ("sqlite memory", "postgres")


class RowByRow(Committer):
    """A committer that never takes the fast path."""

    fast_path = property(lambda self: False, lambda self, value: None)  # type: ignore[assignment]


class Busy(Chance):
    """Plain jobs that workers claim, start and finish in reports, among everything else that may happen."""

    def draw_group(self) -> list[Command[Any]]:
        """Commands that share a transaction."""
        if not self.workers or self.random.random() < 0.02:
            return [Register(name=f"{self.tag}big", incarnation=str(self.count), capacity=40)]
        if self.random.random() < 0.15:
            return [self.draw() for _ in range(self.random.randint(1, 3))]
        kinds = [*[self.plain_jobs] * 3, *[self.claims] * 3, *[self.report] * 4, self.disturb]
        both = self.random.random() < 0.3  # what different people send may share a transaction
        return [command for _ in range(1 + both) for command in self.random.choice(kinds)()]

    def plain_jobs(self) -> list[Command[Any]]:
        works = tuple(
            Work(
                task=self.random.choice(("job", "job", "other")), input=str(number),
                priority=self.random.choice((0, 0, 0, 1)), timeout_us=self.random.choice((None, None, 9_000_000)),
                mutex=self.random.choice((None,) * 9 + ("m",)), key=self.random.choice((None,) * 5 + (f"p{number}",)),
                labels=self.random.choice(("{}", '{"a": "b"}')), trace=self.random.choice(("", "", "0a")),
                delay_us=self.random.choice((0,) * 5 + (2_000_000,)),
            )
            for number in range(self.random.randint(1, 8))
        )  # fmt: skip
        if self.units and self.random.random() < 0.2:  # something is attached to a job that is there
            one = self.random.choice(list(self.units))
            works = (
                *works,
                Work(task="job", after=(one,)) if self.random.random() < 0.5 else Work(task="t", parent=one),
            )
        return [Submit(work=works, actor=self.random.choice(("ada", "bob")))]

    def claims(self) -> list[Command[Any]]:
        return [
            Claim(
                worker=self.random.choice(self.workers), key=f"{self.tag}{self.count}.{number}", nonce="n" * 16,
                limit=self.random.randint(1, 9), actor="w",
            )
            for number in range(self.random.choice((1, 1, 2)))
        ]  # fmt: skip

    def report(self) -> list[Command[Any]]:
        """Some starts, and ends of some of them and of others; now and then something stands between them."""
        grants = self.random.sample(self.grants, min(len(self.grants), self.random.randint(1, 8)))
        if not grants:
            return self.claims()
        actor = self.random.choice(("w", "w", "v"))
        started = [grant for grant in grants if self.random.random() < 0.7]
        ended = [self.outcome(grant) for grant in grants if self.random.random() < 0.8]
        if ended and self.random.random() < 0.05:
            ended.append(ended[0])  # said twice
        between: list[Command[Any]] = [
            Record(held=(make_lease_ref(grants[0]),), kind="checkpoint", name="c", payload="1", actor=actor)
            if self.random.random() < 0.5
            else Heartbeat(held=tuple(make_lease_ref(grant) for grant in grants), actor=actor)
        ]
        return [
            *([Start(held=tuple(self.speak_as(grant) for grant in started), actor=actor)] if started else []),
            *(between if self.random.random() < 0.15 else []),
            *([Finish(outcomes=tuple(ended), actor=actor)] if ended else []),
        ] or self.claims()

    def outcome(self, grant: LeaseGrant) -> Outcome:
        facts: dict[str, Any] = self.random.choice(
            (
                *({},) * 8, {"result": '{"done": 1}'}, {"result": "[2]"}, {"cost": 0.5},
                {"ended": "failure", "error": "no"}, {"ended": "cancelled"}, {"result": "not JSON"},
            )
        )  # fmt: skip
        return Outcome(held=self.speak_as(grant), **facts)

    def speak_as(self, grant: LeaseGrant) -> LeaseRef:
        """The lease of a grant; now and then one that is wrong."""
        ref, wrong = make_lease_ref(grant), self.random.random()
        if wrong < 0.03:
            return LeaseRef(unit=ref.unit, fence=ref.fence, lease="guessed")
        return LeaseRef(unit=ref.unit, fence=ref.fence + (1 if wrong < 0.05 else 0), lease=ref.lease)

    def disturb(self) -> list[Command[Any]]:
        if self.random.random() < 0.3:
            return [SetTenant(max_running=self.random.choice((None, None, 6)))]
        units = [grant.unit for grant in self.grants] or list(self.units)
        hard = self.random.choice((False, True))
        return [Cancel(unit=unit, hard=hard, actor="ann", reason="stop") for unit in units[-2:]] or self.claims()


def compare(worlds: list[World], seed: int, groups: int) -> None:
    """The same groups of commands in both worlds: the same answers, and in the end the same rows."""
    chance = Busy(seed, tag=f"{seed}.")
    for chance.count in range(groups):
        wait, group = chance.random.choice(WAITS[:90]), chance.draw_group()
        for world in worlds:
            world.pass_time(wait)
        share_hints(worlds)
        fast, slow = (ask_together(world, group) for world in worlds)
        for command, answer, other in zip(group, fast, slow, strict=True):
            assert plain(answer) == plain(other), (seed, chance.count, group, command)
            assert not isinstance(answer, Exception) or isinstance(answer, InterlockError), (seed, command, answer)
            chance.learn(command, answer)
    rows = [everything(world.connection) for world in worlds]
    for world, tables in zip(worlds, rows, strict=True):
        declare(world.connection, 1)
        assert list(audit(world.connection, shipped())) == [], seed
        del tables["act"], tables["lease"]  # who shares an act shares the row of its leases
    for table in rows[0]:
        assert rows[0][table] == rows[1][table], (seed, table)


def two_worlds(databases: Any) -> list[World]:
    worlds = [World(connection) for connection in databases]
    worlds[1].engine.committer.__class__ = RowByRow
    return worlds


@pytest.fixture
def units_moved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many units the fast path has moved, act by act."""
    moved: list[int] = []
    write = fast_path.write_acts

    def count(tx: Any, acts: Any) -> None:
        moved.extend(len(act.units) for act in acts)
        write(tx, acts)

    monkeypatch.setattr(fast_path, "write_acts", count)
    return moved


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("database", DATABASES)
def test_both_ways_come_to_the_same(
    database: str, seed: int, tmp_path: Path, server: str, units_moved: list[int]
) -> None:
    with fresh(database, tmp_path / "a", server) as one, fresh(database, tmp_path / "b", server) as two:
        compare(two_worlds((one, two)), seed, groups=250)
    assert sum(units_moved) > 30


@pytest.mark.proof
@pytest.mark.parametrize("database", DATABASES)
def test_both_ways_come_to_the_same_over_a_hundred_thousand_commands(
    database: str, tmp_path: Path, server: str, units_moved: list[int]
) -> None:
    for seed in range(1_000, 1_050):
        with (
            fresh(database, tmp_path / f"a{seed}", server) as one,
            fresh(database, tmp_path / f"b{seed}", server) as two,
        ):
            compare(two_worlds((one, two)), seed, groups=1_200)
    assert sum(units_moved) > 10_000
