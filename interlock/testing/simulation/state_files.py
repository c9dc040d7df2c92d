"""State files in a simulation: a writer that is killed at any byte, and archived trees that come back elsewhere."""

import io
import os
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.audit.laws import audit
from interlock.audit.laws.incremental import CommitReview
from interlock.audit.log.checker import Checker
from interlock.blobs.store import write_pieces
from interlock.core.archive import act_lines, lines
from interlock.kernel.commands import ArchivedLane, RestoreTree
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Act, Event, Unit
from interlock.plugins import make_engine
from interlock.plugins.state_files.exporter import Exporter
from interlock.plugins.state_files.folder import LOG, open_folder
from interlock.plugins.state_files.plugin import PLUGIN
from interlock.plugins.state_files.queries import count_logged
from interlock.store.ids import Ids
from interlock.store.queries.snapshots import read_rows
from interlock.store.retention import KEPT, load_tree
from interlock.store.unit_of_work import open_unit_of_work
from interlock.testing.simulation.faulty_store import Disk

if TYPE_CHECKING:
    from interlock.testing.simulation.world import World

TENANT = 1
WRITES, FALLS, DOCUMENTS = 0.04, 0.5, 0.3  # how likely each is: after a commit, and each time that it writes
PAGES, PAGE_SIZES = 4, (1, 7, 100)
ROTATE_BYTES = (2_000, 20_000, 1 << 20)
RESTORES = 3  # one seed of so many ends with trees that come back
TREES_MAX = 12
TABLES = {kind.table: kind for kind, _, _ in KEPT}


class StateWriter:
    """What its log tells in the end is the record: every transition once, in an order that the checker accepts."""

    def __init__(self, world: "World") -> None:
        self.world, self.random = world, random.Random(f"state writer {world.seed}")
        self.rotate_bytes = self.random.choice(ROTATE_BYTES)
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "state"

    def watch(self, review: CommitReview) -> None:
        """Something was committed: it writes some pages, and may be killed in the middle of what it writes."""
        if self.random.random() < WRITES:
            self.write(self.random.randrange(1, PAGES))

    def write(self, pages: int | None = None) -> None:
        """One writer from its start to its end, after so many pages or when all is written."""
        with open_folder(self.path, self.rotate_bytes) as folder:
            before = folder.size
            exporter = Exporter(folder, self.read, page=self.random.choice(PAGE_SIZES))
            while exporter.copy_page() and pages != 0:
                pages = None if pages is None else pages - 1
            if pages is None or self.random.random() < DOCUMENTS:
                exporter.write_documents(at_once=True)
        if pages is not None and self.random.random() < FALLS:
            written = (self.path / LOG).stat().st_size
            os.truncate(self.path / LOG, self.random.randint(min(before, written), written))

    def read(self, query: Any, *args: Any) -> Any:
        return query(self.world.eye, TENANT, *args)

    def judge(self) -> None:
        """Writes the rest, and compares all of it with the record."""
        self.write()
        text = b"".join(path.read_bytes() for path in (*sorted(self.path.glob("transitions.0*")), self.path / LOG))
        self.folder.cleanup()
        logged = [msgspec.json.decode(line)["metadata"]["event_id"] for line in text.splitlines()]
        count, different = self.read(count_logged), len(set(logged))
        if not different == len(logged) == count:
            self.world.add_violation(f"{count} transitions have {len(logged)} lines, {different} different ones")
        machines = [kind for kind in self.world.lifecycles.values() if kind.document == "003"]
        for problem in Checker(machines, from_birth=True).findings(io.BytesIO(text)):
            self.world.add_violation(f"line {problem.line} of the log: {problem.entity}: {problem.message}")


def has_state_files(world: "World") -> bool:
    """Whether the engines of a world know state files at all."""
    return PLUGIN in world.registry.plugins


# Archives.


def restore_elsewhere(world: "World") -> None:
    """Some of what has ended comes back into a database that has not got it: as it was, through the guard, and once."""
    dice = random.Random(f"restore {world.seed}")
    disk = Disk(registry=world.registry)
    other = disk.connection(world.now_us, lambda place: "")
    try:
        engine = make_engine(other, world.lifecycles, registry=world.registry)
        trees = find_ended_trees(world)
        for top in dice.sample(trees, min(len(trees), TREES_MAX)):
            command = read_archived(world, top)
            for row in command.others:
                if row["table"] == "blob":
                    write_pieces(disk.blobs, TENANT, world.disk.blobs.read(TENANT, row["digest"]), row["digest"])
            if dice.random() < 0.3:  # somebody has changed the file
                check_refusal(world, engine, msgspec.structs.replace(command, acts=leave_one_out(dice, command.acts)))
            engine.send(command)
            compare_histories(world, other, [row.id for row in command.rows if isinstance(row, Unit)])
            if dice.random() < 0.3:
                check_refusal(world, engine, command)
        for broken in audit(other, world.lifecycles, rebuild=True, laws=world.registry.laws):
            world.add_violation(f"what came back: unit {broken.unit}: {broken.law}: {broken.text}")
    except InterlockError as refused:
        world.add_violation(f"an archived tree did not come back: {refused}")
    finally:
        other.close()
        disk.close()


def find_ended_trees(world: "World") -> list[int]:
    """The tops of trees in which everything has ended, and that were not broken from outside."""
    rows = read_rows(world.eye, Unit, "WHERE tenant = :tenant ORDER BY id", tenant=TENANT)
    above = {unit.id: unit.parent for unit in rows}

    def find_top(unit: int) -> int:
        while (parent := above[unit]) is not None:
            unit = parent
        return unit

    unfinished = {find_top(unit.id) for unit in rows if unit.outcome is None or unit.id in world.poisoned}
    return [unit.id for unit in rows if unit.parent is None and unit.id not in unfinished]


def read_archived(world: "World", top: int) -> RestoreTree:
    """A tree as an archive holds it."""
    tx = open_unit_of_work(world.eye, world.lifecycles, Ids(world.eye), [TENANT], world.registry.hooks)
    try:
        units = load_tree(tx, tx.unit(top))
        acts = [msgspec.json.decode(line, type=Act) for line in act_lines(tx, units, set())]
        rows, lanes, others = list[Any](), list[ArchivedLane](), list[dict[str, Any]]()
        for line in lines(tx, units):
            row = msgspec.json.decode(line)
            if row["table"] == "lane":
                lanes.append(msgspec.json.decode(line, type=ArchivedLane))
            elif row["table"] in TABLES:
                rows.append(msgspec.json.decode(line, type=TABLES[row["table"]]))
            else:
                others.append(row)
    finally:
        world.eye.rollback()
    return RestoreTree(
        unit=top, file="a.jsonl", acts=tuple(acts), rows=tuple(rows), lanes=tuple(lanes), others=tuple(others)
    )


def leave_one_out(dice: random.Random, acts: tuple[Act, ...]) -> tuple[Act, ...]:
    """Leaves one act out."""
    place = dice.randrange(len(acts))
    return acts[:place] + acts[place + 1 :]


def check_refusal(world: "World", engine: Any, command: RestoreTree) -> None:
    """What is there already, or was changed, does not come back."""
    try:
        engine.send(command)
    except InterlockError:
        return
    world.add_violation(f"unit {command.unit} came back twice, or from a file that somebody has changed")


def compare_histories(world: "World", other: Any, units: list[int]) -> None:
    """What came back has the history that it had."""
    for unit in units:
        before, now = (
            [msgspec.structs.replace(event, hash="") for event in read_rows(
                connection, Event, "WHERE unit = :unit ORDER BY version", unit=unit
            )]
            for connection in (world.eye, other)
        )  # fmt: skip
        if before != now:
            world.add_violation(f"unit {unit} came back with another history: {now} in place of {before}")
