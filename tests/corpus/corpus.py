"""A corpus: random commands, what each was answered, and the rows that they left, recorded once and reproduced ever after.

`python -m tests.corpus.corpus` records it anew, on SQLite and PostgreSQL, which must agree. That is done only when the
product's behaviour changes on purpose: the corpus is what protects a new way of storing the same record. What belongs
to the way of storing is left out: hashes, positions, and secrets of leases.
"""

import gzip
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from interlock.kernel import commands
from interlock.kernel.commands import (
    Command,
    DefineSchedule,
    DefineTemplate,
    FireSchedule,
    Force,
    LeaseGrant,
    PauseSchedule,
    Record,
    RemoveSchedule,
    ResumeSchedule,
    SetTenant,
    Signal,
    Submit,
    Work,
)
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import (
    Answer,
    Artifact,
    Body,
    Event,
    Need,
    Note,
    Row,
    Schedule,
    Skipped,
    Slot,
    Token,
    Unit,
    WorkerRow,
)
from interlock.kernel.rows import (
    Tenant as TenantRow,
)
from interlock.kernel.workflow_graph import Template
from interlock.lifecycles import shipped
from interlock.store.queries.snapshots import read_leases, read_rows
from interlock.testing.simulation.random_commands import SECOND, Chance, make_lease_ref
from tests.engine.world import World
from tests.postgres.server import postgres
from tests.store.databases import Connection, declare, fresh

FOLDER = Path(__file__).parent / "recorded"
SEEDS = (0, 1, 3, 4, 5, 6, 7, 10)  # together they take most transitions
COMMANDS = 500  # of each seed
GROUP_MAX = 4  # commands that share a transaction
LOOK_EVERY = 10  # groups between two looks at the rows
# What another way of storing may say otherwise: hashes, positions, and what is derived from secrets.
LEFT_OUT = {
    "unit": {"head", "act", "born", "rests_in", "dead_at", "lease_id", "lease_hash", "plain", "xid"}, "event": {"hash"},
    "worker": {"claim_nonce_hash", "tasks", "completions"}, "answer": {"request"}, "need": {"by_end"},
}  # fmt: skip
KINDS: tuple[type[Row], ...] = (
    Unit, Body, Event, Need, Note, WorkerRow, Artifact, TenantRow, Slot, Token, Schedule, Template, Skipped, Answer,
)  # fmt: skip
KEYS = {
    "event": ("unit", "version"), "need": ("unit", "needs"), "artifact": ("unit", "attempt", "name"),
    "slot": ("tenant", "key"), "token": ("unit", "fence"), "schedule": ("tenant", "name"),
    "answer": ("tenant", "scope", "key"), "template": ("tenant", "name", "version"), "note": ("id",), "unit": ("id",),
    "tenant": ("id",), "skipped": ("id",),
}  # fmt: skip
# Refusals were recorded in their first wording, and named a unit by its number.
REWORDED = {
    r"^there is no unit (-?\d+)$": r"no job, run or step \1",
    r" units may wait; ": " jobs may wait; ",
    r": a step says no step: its run does$": ": a step has no step; set it on the run",
    r"^an? \w+ is not done again by itself; submit it anew": "it cannot be rerun by itself; submit a new one",
    r"^\w+_[0-9a-z]+ cannot be rerun by itself": "it cannot be rerun by itself",
    r"^(unit \d+|\w+_[0-9a-z]+) (has ended|of the instant before)": r"it \2",
}
TOLD_LATER = r'^\{"fence":\d+\}$'  # the fence under which a phase was entered, which was not told when it was recorded
TAKES_OUTPUTS = "takes_outputs"
Table = dict[str, dict[str, Any]]  # by key, as text


class Step(msgspec.Struct, forbid_unknown_fields=True):
    """Commands that shared a transaction, what came of each, and now and then what had changed in the rows."""

    wait: float  # seconds that pass before
    commands: list[dict[str, Any]]
    answers: list[Any]
    rows: dict[str, dict[str, dict[str, Any] | None]] | None = None  # by table and key; null: it is gone


class Wider(Chance):
    """Beside what `Chance` draws: schedules, templates, signals, limits, tenants, queues, and states by force."""

    def draw(self) -> Command[Any]:
        if self.workers and self.random.random() < 0.15:
            return self.random.choice([self.plan, self.flow, self.limited, self.operate, self.listen])()
        return super().draw()

    def learn(self, command: Command[Any], answer: Any) -> None:
        super().learn(command, answer)
        if isinstance(command, FireSchedule) and not isinstance(answer, Exception):
            self.units[answer.unit] = "job"

    def plan(self) -> Command[Any]:
        name = self.random.choice(("p", "q"))
        work = Work(task="planned", attempts=1)
        define = DefineSchedule(
            name=name, timing=self.random.choice(("every 5s", "*/2 * * * *")), work=work,
            overlap=self.random.choice(commands.OVERLAP), missed=self.random.choice(commands.MISSED),
        )  # fmt: skip
        return self.random.choice(
            [
                define,
                define,
                FireSchedule(name=name),
                PauseSchedule(name=name),
                ResumeSchedule(name=name),
                RemoveSchedule(name=name),
            ]
        )

    def flow(self) -> Command[Any]:
        steps = (
            Work(task="t", lifecycle="step", ref="one", step="one", undo="undo"),
            Work(
                task="ok",
                lifecycle="approval",
                ref="gate",
                step="gate",
                needs=("one",),
                quorum=2,
                expires_us=9 * SECOND,
            ),
            Work(task="t", lifecycle="step", ref="two", step="two", needs=("gate",), when="one == 1"),
        )
        run = Work(task="flow", lifecycle="workflow_run", template="flow", input='{"a": 1}')
        return self.random.choice([DefineTemplate(name="flow", steps=steps), Submit(work=(run,)), Submit(work=(run,))])

    def limited(self) -> Command[Any]:
        limited = Work(task="few", limit_key="l", limit=self.random.choice((1, 2)), labels='{"team": "a"}', trace="0a")
        apart = Work(task="apart", queue="other", capabilities=("gpu",), correlation="order-7", backoff_us=SECOND)
        undone = Work(task="short", ttl_us=30 * SECOND, beat_us=10 * SECOND, backoff_cap_us=2 * SECOND)
        some = self.random.choices((limited, apart, undone), k=self.random.choice((1, 1, 5)))
        return Submit(work=tuple(some), actor=self.random.choice(("ada", "bob")), reason="wanted", cause="evt_1")

    def operate(self) -> Command[Any]:
        if not self.units or self.random.random() < 0.3:
            return SetTenant(max_running=self.random.choice((None, 5)), max_waiting=self.random.choice((None, 40)))
        unit = self.random.choice(list(self.units))
        states = list(shipped()[self.units[unit]].states)
        return Force(unit=unit, state=self.random.choice(states), reason=self.random.choice(("", "stuck")), actor="eve")

    def listen(self) -> Command[Any]:
        if self.grants and self.random.random() < 0.5:
            kind = self.random.choice(("progress", "checkpoint", "step", "artifact", "log"))
            return Record(held=(make_lease_ref(self.grants[-1]),), kind=kind, name="n", payload='{"b": 2}')
        unit = self.random.choice(list(self.units or [1]))
        return Signal(unit=unit, name=self.random.choice("uv"), payload="3")


def record(seed: int, world: World) -> Iterator[Step]:
    """The steps of a seed, as this code carries them out."""
    chance, size = Wider(seed, tag=f"{seed}."), random.Random(f"groups of {seed}")
    drawn, seen = chance.commands(COMMANDS), Rows(world.connection)
    number = 0
    while group := list(islice(drawn, size.randint(1, GROUP_MAX))):
        number += 1
        sent, wait = [command for command, _ in group], group[0][1]
        answers = carry_out(world, sent, wait)
        for command, answer in zip(sent, answers, strict=True):
            chance.learn(command, answer)
        step = Step(wait, [spelled(command) for command in sent], [plain(answer) for answer in answers])
        if number % LOOK_EVERY == 0:
            step.rows = seen.changes()
        yield step
    yield Step(0, [], [], seen.changes())


def carry_out(world: World, sent: list[Command[Any]], wait: float) -> list[Any]:
    """What commands are answered that share a transaction, if nothing speaks against it."""
    world.pass_time(wait)
    committer = world.engine.committer
    futures = [committer.put(command) for command in sent]
    while committer.step():
        pass
    answers = [future.exception() or future.result() for future in futures]
    for command, answer in zip(sent, answers, strict=True):
        if isinstance(answer, BaseException) and not isinstance(answer, InterlockError):
            raise AssertionError(f"{command} raised {answer!r}") from answer
    return answers


def replay(steps: list[Step], world: World) -> None:
    """The same commands are answered as they were when they were recorded, and leave the same rows."""
    seen, leases, now = Rows(world.connection), dict[str, str](), Rows.nothing()
    for place, step in enumerate(steps):
        sent = [with_leases(parsed(command), leases) for command in step.commands]
        answers = carry_out(world, sent, step.wait)
        for command, recorded, answer in zip(step.commands, step.answers, answers, strict=True):
            if command["command"] == "Claim" and isinstance(answer, list) and isinstance(recorded, list):
                pairs = zip(recorded, answer, strict=False)
                leases |= {grant["lease"]: actual.lease for grant, actual in pairs if isinstance(actual, LeaseGrant)}
            told = as_recorded(plain(answer), recorded)
            told = reworded(masked(told, {actual: said for said, actual in leases.items()}))
            recorded = reworded(recorded)
            assert told == recorded, f"step {place}: {command}\nrecorded: {recorded}\nnow:      {told}"
        if step.rows is not None:
            now = seen.changes()
            for table, rows in step.rows.items():
                for key in sorted(rows.keys() | now[table].keys()):
                    assert reworded(now[table].get(key)) == reworded(rows.get(key)), (
                        f"step {place}: {table} {key}\nrecorded: {rows.get(key)}\nnow:      {now[table].get(key)}"
                    )


def reworded(recorded: Any) -> Any:
    """An answer or a row with its texts as they are worded now; lanes are numbered as they come, a task has its own."""
    if isinstance(recorded, dict):
        recorded = {name: value for name, value in recorded.items() if name != "lane"}
        if recorded.get("lifecycle") == "agent_run" and "payload" in recorded:
            recorded["payload"] = re.sub(TOLD_LATER, "{}", recorded["payload"])
    for name in ("text", "reason"):
        if isinstance(recorded, dict) and isinstance(recorded.get(name), str):
            for pattern, words in REWORDED.items():
                recorded = {**recorded, name: re.sub(pattern, words, recorded[name])}
    return recorded


def as_recorded(told: Any, recorded: Any) -> Any:
    """An answer without the fields that answers did not have yet when it was recorded."""
    if isinstance(told, dict) and isinstance(recorded, dict):
        return {name: as_recorded(value, recorded[name]) for name, value in told.items() if name in recorded}
    if isinstance(told, list) and isinstance(recorded, list) and len(told) == len(recorded):
        return [as_recorded(*pair) for pair in zip(told, recorded, strict=True)]
    return told


class Rows:
    """What the tables hold, and what has changed since the last look."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.before = connection, self.nothing()

    @staticmethod
    def nothing() -> dict[str, Table]:
        return {kind.table: {} for kind in KINDS}

    def changes(self) -> dict[str, dict[str, dict[str, Any] | None]]:
        """By table and key, each row that is new or another than before; None if it is gone."""
        before, self.before = self.before, self.read()
        return {
            table: {
                **{key: row for key, row in rows.items() if before[table].get(key) != row},
                **dict.fromkeys(before[table].keys() - rows.keys()),
            }
            for table, rows in self.before.items()
        }

    def read(self) -> dict[str, Table]:
        declare(self.connection, 1)
        tables = {}
        for kind in KINDS:
            rows = read_rows(self.connection, kind, "")
            if kind is Unit:
                read_leases(self.connection, rows)
            tables[kind.table] = {
                ",".join(str(getattr(row, name)) for name in KEYS.get(kind.table, ("unit",))): logical(row)
                for row in rows
            }
        return tables


def logical(row: Row) -> dict[str, Any]:
    """What a row says, wherever it is stored: of a lease only while it is live, and its end among the clocks."""
    said = {
        name: value for name, value in msgspec.structs.asdict(row).items() if name not in LEFT_OUT.get(row.table, ())
    }
    if isinstance(row, Body) and TAKES_OUTPUTS in row.policy:  # what is recorded is older than this
        policy = {name: value for name, value in msgspec.json.decode(row.policy).items() if name != TAKES_OUTPUTS}
        said["policy"] = msgspec.json.encode(policy).decode()
    if isinstance(row, Unit):
        if row.holder is None:
            said |= {"lease_until": None, "lease_ttl": None, "lease_beat": None}
        elif row.lease_until is not None:
            said["wake_at"] = min(row.lease_until, row.wake_at or row.lease_until)
    return said


def spelled(command: Command[Any]) -> dict[str, Any]:
    """A command as data, without what it does not say."""
    said = {
        name: msgspec.to_builtins(value)
        for name, value in msgspec.structs.asdict(command).items()
        if value is not msgspec.UNSET
    }
    return {"command": type(command).__name__, **said}


def parsed(said: dict[str, Any]) -> Command[Any]:
    fields = {name: value for name, value in said.items() if name != "command"}
    command: Command[Any] = msgspec.convert(fields, getattr(commands, said["command"]))
    return command


def with_leases(command: Command[Any], leases: dict[str, str]) -> Command[Any]:
    """The command with the secrets that were handed out now, in place of those that were when it was recorded."""
    text = msgspec.json.encode(spelled(command)).decode()
    for recorded, actual in leases.items():
        text = text.replace(recorded, actual)
    return parsed(msgspec.json.decode(text))


def masked(answer: Any, secrets: dict[str, str]) -> Any:
    text = msgspec.json.encode(answer).decode()
    for actual, recorded in secrets.items():
        text = text.replace(actual, recorded)
    return msgspec.json.decode(text)


def plain(answer: Any) -> Any:
    """An answer as it comes back from a file."""
    if isinstance(answer, InterlockError):
        return {"refused": type(answer).__name__, "text": str(answer)}
    return msgspec.json.decode(msgspec.json.encode(answer))


def file_of(seed: int) -> Path:
    return FOLDER / f"seed_{seed}.jsonl.gz"


def load(seed: int) -> list[Step]:
    lines = gzip.decompress(file_of(seed).read_bytes()).splitlines()
    return [msgspec.json.decode(line, type=Step) for line in lines]


def save(seed: int, steps: list[Step]) -> None:
    text = b"".join(msgspec.json.encode(step) + b"\n" for step in steps)
    file_of(seed).write_bytes(gzip.compress(text, mtime=0))


def main() -> int:
    """Records the corpus on SQLite, and sees that PostgreSQL says the same."""
    FOLDER.mkdir(exist_ok=True)
    with postgres() as server:
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                with fresh("sqlite memory", Path(folder), server) as connection:
                    steps = list(record(seed, World(connection)))
                with fresh("postgres", Path(folder), server, role="operator") as connection:
                    replay(
                        [msgspec.json.decode(msgspec.json.encode(step), type=Step) for step in steps], World(connection)
                    )
            save(seed, steps)
            print(f"seed {seed}: {sum(len(step.commands) for step in steps)} commands in {len(steps)} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
