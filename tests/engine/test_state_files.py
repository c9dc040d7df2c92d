"""The state folder: every transition of tasks, workstreams and workers is a line, once and in order, whatever is killed."""

import io
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from interlock.audit.log.checker import Checker
from interlock.core.engine import Engine
from interlock.kernel.commands import Claim, Decide, Drain, Register, Rerun, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from interlock.plugins.state_files.documents import count_moves
from interlock.plugins.state_files.exporter import Exporter
from interlock.plugins.state_files.folder import CURRENT, LOG, open_folder
from interlock.plugins.state_files.transitions import TransitionPage, read_transitions
from interlock.store.caller_transaction import join_transaction
from interlock.store.postgres import PostgresConnection
from interlock.store.restore import begin_again
from interlock.testing.simulation.random_commands import Chance
from tests.engine.test_families import workstream
from tests.engine.test_random_commands import ask_together
from tests.engine.test_workstream_histories import COMMANDS, ENDS, History, Trusting
from tests.engine.world import World
from tests.store.databases import declare, fresh, fresh_postgres

MB = 1 << 20
LOGGED = "lifecycle IN ('task', 'workstream', 'worker') AND source IS NOT NULL AND source <> target"
Line = dict[str, Any]


def reader(world: World) -> Callable[..., Any]:
    """Asks queries as an app beside the database does."""

    def read(query: Callable[..., Any], *args: Any) -> Any:
        declare(world.connection, 1)
        return query(world.connection, 1, *args)

    return read


def export(world: World, path: Path, rotate_bytes: int = MB, page: int = 7) -> list[Line]:
    """The lines of the log when everything was written."""
    with open_folder(path, rotate_bytes) as folder:
        Exporter(folder, reader(world), page=page).run(follow=False)
    return read_lines(path)


def read_text(path: Path) -> bytes:
    """All files of the log, one behind the other."""
    return b"".join(file.read_bytes() for file in (*sorted(path.glob("transitions.0*.jsonl")), path / LOG))


def read_lines(path: Path) -> list[Line]:
    return [msgspec.json.decode(line) for line in read_text(path).splitlines()]


def find_problems(path: Path) -> list[str]:
    """What `validate-log --from-birth` says against the log."""
    machines = [lifecycle for lifecycle in shipped().values() if lifecycle.document == "003"]
    checker = Checker(machines, from_birth=True)
    return [
        f"{finding.line} {finding.entity} {finding.message}"
        for finding in checker.findings(io.BytesIO(read_text(path)))
    ]


def live(world: World, seed: int, commands: int = 400) -> None:
    """Random commands; those of one group share a transaction."""
    chance = Chance(seed, tag=f"{seed}.")
    drawn = list[Any]()
    for command, wait in chance.commands(commands):
        drawn.append(command)
        if len(drawn) <= chance.random.randrange(3):
            continue
        world.pass_time(wait)
        for one, answer in zip(drawn, ask_together(world, drawn), strict=True):
            chance.learn(one, answer)
        drawn.clear()


def count_transitions(world: World) -> int:
    return world.count("event", LOGGED)


@pytest.mark.req("R3-49", "R3-51")
def test_a_workstream_from_plan_to_merge_is_told_line_by_line(world: World, tmp_path: Path) -> None:
    stream, build, ship = workstream(world, ("build", True, ()), ("ship", True, ("build",)))
    worker = world.worker("ann")
    for task in (build, ship):
        (grant,) = world.claim(worker)
        world.pass_time(3)
        world.finish(grant)
        world.pass_time(1)
        world.send(Decide(unit=task, trigger="valid"))
    world.send(Decide(unit=stream, trigger="valid"))
    world.send(Drain(worker=worker))
    lines = export(world, tmp_path)
    told = [(line["event_type"], line["from_state"], line["to_state"], line["trigger"]) for line in lines]
    assert told[:2] == [
        ("workstream_state_transition", "planned", "ready", "all_tasks_created"),
        ("task_state_transition", "pending", "queued", "scheduler_assigned"),
    ]
    assert told[-2:] == [
        ("workstream_state_transition", "validating", "completed", "validation_passed"),
        ("worker_state_transition", "idle", "shutdown", "shutdown_requested"),
    ]
    assert [line["metadata"]["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert len(lines) == count_transitions(world) == 18
    assert find_problems(tmp_path) == []
    ended = [line["metadata"] for line in lines if line["to_state"] == "completed" and "task" in line["event_type"]]
    assert [(facts["duration_seconds"], facts["retry_count"]) for facts in ended[:2]] == [(3.0, 0), (3.0, 0)]
    (ready,) = [line for line in lines if line["metadata"].get("dependencies")]
    assert ready["metadata"]["dependencies"] == [ended[0]["event_id"].partition(".")[0]]
    ran = [line for line in lines if "running" in (line["from_state"], line["to_state"])]
    (name,) = {line["entity_id"] for line in lines if line["event_type"] == "worker_state_transition"}
    assert {line["metadata"]["worker_id"] for line in ran} == {name}
    assert len(ran) == 4


def test_two_incarnations_of_a_name_are_told_apart(world: World, tmp_path: Path) -> None:
    workstream(world, ("one", True, ()), ("two", True, ()))
    first = world.worker("ann")
    world.claim(first)
    second = world.send(Register(name="ann", incarnation="2", capacity=9))
    world.claim(second)
    lines = export(world, tmp_path)
    started = [line["metadata"]["worker_id"] for line in lines if line["to_state"] == "running"]
    assert len(set(started)) == 2
    assert find_problems(tmp_path) == []


@pytest.mark.req("R3-49", "R3-50")
@pytest.mark.parametrize("seed", range(4))
def test_random_lives_are_told_whole_and_the_checker_accepts_them(world: World, tmp_path: Path, seed: int) -> None:
    live(world, seed)
    lines = export(world, tmp_path)
    assert len(lines) == count_transitions(world) > 50
    assert len({line["metadata"]["event_id"] for line in lines}) == len(lines)
    assert find_problems(tmp_path) == []
    times = [line["timestamp"] for line in lines]
    assert times == sorted(times)


@pytest.mark.req("R3-49")
@pytest.mark.parametrize("seed", range(3))
def test_a_writer_that_is_killed_anywhere_loses_nothing_and_repeats_nothing(
    world: World, tmp_path: Path, seed: int
) -> None:
    """Whatever part of what it wrote is on disk, the next one makes the same log of it as one that was never killed."""
    chance, torn, whole = random.Random(seed), tmp_path / "torn", tmp_path / "whole"
    for part in range(8):
        live(world, seed * 100 + part, commands=60)
        for _ in range(4):
            with open_folder(torn, 20_000) as folder:
                before = folder.size
                Exporter(folder, reader(world), page=20).copy_page()
                written = (torn / LOG).stat().st_size
            os.truncate(torn / LOG, chance.randint(min(before, written), written))
    export(world, torn, 20_000)
    export(world, whole, 20_000)
    assert read_lines(torn) == read_lines(whole)
    assert len(read_lines(whole)) == count_transitions(world)
    assert find_problems(torn) == []


@pytest.mark.parametrize("seed", range(2))
def test_the_overview_is_what_the_database_has_whoever_wrote_the_one_before(
    world: World, tmp_path: Path, seed: int
) -> None:
    """Counts are gone on with, and what is open is found by its indexes; all units are read here to compare."""
    for part in range(6):
        live(world, seed * 100 + part, commands=60)
        if part == 3:
            (tmp_path / CURRENT).write_text("{}")  # as an earlier version has left it
        with open_folder(tmp_path, MB) as folder:
            exporter = Exporter(folder, partial(read_in_parts, world), page=20)
            exporter.run(follow=False)
            live(world, seed * 100 + part + 50, commands=20)
            exporter.run(follow=False)
        current = msgspec.json.decode((tmp_path / CURRENT).read_bytes())
        metrics = msgspec.json.decode((tmp_path / "metrics.json").read_bytes())
        assert current["counts"] == count_units(world)
        open_tasks = "lifecycle = 'task' AND outcome IS NULL"
        assert [task["id"] for task in current["open_tasks"]] == list_ids(world, open_tasks)
        streams = "lifecycle = 'workstream' AND outcome IS NULL"
        assert [stream["id"] for stream in metrics["workstreams"]] == list_ids(world, streams)


def read_in_parts(world: World, query: Callable[..., Any], *args: Any) -> Any:
    """Asks a query; of transitions that are counted, a few at a time."""
    return reader(world)(query, *args, *([3] if query is count_moves else []))


def count_units(world: World) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {"task": {}, "workstream": {}, "worker": {}}
    declare(world.connection, 1)
    rows = world.connection.rows(
        "SELECT lifecycle, state, count(*) FROM unit WHERE tenant = 1 GROUP BY lifecycle, state ORDER BY 1, 2"
    )
    for lifecycle, state, count in rows:
        if lifecycle in counts:
            counts[lifecycle][state] = count
    return counts


def list_ids(world: World, where: str) -> list[str]:
    declare(world.connection, 1)
    rows = world.connection.rows(f"SELECT lifecycle, id FROM unit WHERE tenant = 1 AND {where} ORDER BY id")
    return [format_id(lifecycle, unit) for lifecycle, unit in rows]


def test_a_transaction_that_began_first_and_ended_last_is_told_behind_what_it_followed(
    server: str, tmp_path: Path
) -> None:
    """A claim that began before a task was queued starts it: on PostgreSQL its place in the feed is before."""
    with fresh_postgres(server, "late_order") as url, open_engine(url, shipped()) as engine:
        worker = engine.send(Register(name="w", incarnation="1", capacity=9))
        work = (Work(task="s", lifecycle="workstream", ref="s"), Work(task="t", lifecycle="task", parent="s"))
        stream = engine.send(Submit(work=work))[0].unit
        with psycopg.connect(url) as slow:
            first = Submit(work=(Work(task="mail", queue="another"),))
            engine.send_within(join_transaction(slow), first)  # it has its place in the feed from now on
            engine.send(Decide(unit=stream, trigger="plan"))
            page = read_page(engine, None)
            assert [line.to_state for line in page.transitions] == ["idle"]
            engine.send_within(join_transaction(slow), Claim(worker=worker, key="c", nonce="0" * 16, limit=1))
        with open_folder(tmp_path, MB) as folder:
            Exporter(folder, lambda query, *args: engine.read(lambda c: query(c, 1, *args), 1)).run(follow=False)
        told = [line["to_state"] for line in read_lines(tmp_path)]
        assert told == ["idle", "ready", "queued", "running", "busy", "executing"]
        assert find_problems(tmp_path) == []


def read_page(engine: Engine, cursor: str | None) -> TransitionPage:
    return engine.read(lambda connection: read_transitions(connection, 1, cursor), 1)


def test_a_log_that_is_empty_goes_on_behind_the_older_ones(world: World, tmp_path: Path) -> None:
    """A writer may be killed when it has given the log a number, and has written nothing to the next one."""
    live(world, 3, commands=100)
    lines = export(world, tmp_path, 5_000)
    assert list(tmp_path.glob("transitions.0*.jsonl")) != []
    (tmp_path / LOG).unlink()
    assert export(world, tmp_path, 5_000) == lines


def read_file(path: Path) -> list[Line]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def test_a_log_is_not_rotated_inside_an_instant(world: World, tmp_path: Path) -> None:
    workstream(world, *((f"t{place}", True, ()) for place in range(30)))  # 31 transitions at once
    world.pass_time(1)
    world.worker()
    export(world, tmp_path, 500)
    (older,) = tmp_path.glob("transitions.0*.jsonl")
    assert len({line["timestamp"] for line in read_file(older)}) == 1
    assert len(read_file(older)) == 31
    assert len(read_file(tmp_path / LOG)) == 1


def test_the_database_restored_from_a_backup_is_another_one(world: World, tmp_path: Path) -> None:
    live(world, 4, commands=60)
    lines = export(world, tmp_path)
    declare(world.connection, 1)
    if isinstance(world.connection, PostgresConnection):
        return  # only its owner may say so: tests/engine/test_restored.py
    begin_again(world.connection, world.now_us)
    with pytest.raises(InterlockError, match=r"or before this one was restored from a backup.*name another folder"):
        export(world, tmp_path)
    assert read_lines(tmp_path) == lines


@pytest.mark.parametrize("seed", range(4))
def test_tasks_that_are_added_retried_skipped_and_reassigned_leave_a_sound_log(tmp_path: Path, seed: int) -> None:
    with fresh("sqlite memory", tmp_path, "") as connection:
        world = Trusting(connection)
        history = History(world, seed)
        history.play(COMMANDS)
        if history.state in ENDS:
            world.send(Rerun(unit=history.stream, failed=True))
        assert len(export(world, tmp_path / "state")) == count_transitions(world)
        assert find_problems(tmp_path / "state") == []
