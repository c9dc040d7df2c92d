"""What it costs PostgreSQL to take a page of a graph does not grow with how many jobs there are already."""

from pathlib import Path

from interlock.kernel.commands import Submit, Work
from tests.engine.world import World
from tests.store.databases import fresh

PAGE, PAGES = 200, 8
READ = "SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables WHERE relname IN ('unit', 'need', 'place')"


def test_a_page_of_a_graph_does_not_read_the_jobs_before_it(tmp_path: Path, server: str) -> None:
    """What its jobs need is found by key, each: the guard looks through no whole table."""
    with fresh("postgres", tmp_path, server) as connection:
        world = World(connection)
        (first,) = world.engine.send(Submit(work=(Work(task="first"),)))
        read = []
        for _ in range(PAGES):
            before = count_read_in_order(world)
            world.engine.send(Submit(work=tuple(Work(task="mail", after=(first.unit,)) for _ in range(PAGE))))
            read.append(count_read_in_order(world) - before)
        assert max(read[1:]) <= PAGE, read


def test_a_page_of_named_children_does_not_read_the_children_before_it(tmp_path: Path, server: str) -> None:
    with fresh("postgres", tmp_path, server) as connection:
        world = World(connection)
        (run,) = world.engine.send(Submit(work=(Work(task="whole", lifecycle="workflow_run"),)))
        read = []
        for page in range(PAGES):
            names = [f"n{page * PAGE + number}" for number in range(PAGE)]
            works = tuple(
                Work(task="part", lifecycle="step", parent=run.unit, step=name, needs=(names[0],) if number else ())
                for number, name in enumerate(names)
            )
            before = count_read_in_order(world)
            world.engine.send(Submit(work=works))
            read.append(count_read_in_order(world) - before)
        assert max(read[1:]) <= PAGE, read


def count_read_in_order(world: World) -> int:
    """How many rows were read by going through a whole table so far."""
    world.connection.rows("SELECT pg_stat_force_next_flush()")
    return int(world.connection.rows(READ)[0][0])
