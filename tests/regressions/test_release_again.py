"""A holder that gives a unit back and gets no answer says so again, and is answered as before (seed 70)."""

from interlock.kernel.commands import Cancel, Decide, Release, Submit, Work
from interlock.lifecycles import shipped
from interlock.store import migrate
from interlock.store.sqlite import MEMORY, SqliteConnection
from tests.engine.world import World, held


def world() -> World:
    connection = SqliteConnection(MEMORY)
    migrate.upgrade(connection, shipped().values())
    return World(connection)


def test_what_was_cancelled_may_be_given_back_twice() -> None:
    here = world()
    run = here.send(
        Submit(work=(Work(task="t", lifecycle="ci_run", ref="r"), Work(task="t", lifecycle="ci_job", parent="r")))
    )[0].unit
    here.send(Decide(unit=run, trigger="plan"))
    (grant,) = here.claim(here.worker())
    here.start(grant)
    here.send(Cancel(unit=grant.unit))
    release = Release(held=(held(grant),), actor="w")
    first, again = here.send(release), here.send(release)
    assert first[0].accepted
    assert (again[0].accepted, again[0].state) == (True, first[0].state)
    here.connection.close()


def test_what_waits_in_place_may_be_given_back_twice_but_what_was_revoked_was_not_given_back() -> None:
    here = world()
    work = (Work(task="t", lifecycle="agent_run", ref="r"), Work(task="t", lifecycle="agent_job", parent="r"))
    here.send(Submit(work=work))
    (grant,) = here.claim(here.worker())
    release = Release(held=(held(grant),), actor="w")
    assert [here.send(release)[0].accepted for _ in range(2)] == [True, True]
    assert not here.send(Release(held=(held(grant),), actor="somebody else"))[0].accepted
    here.connection.close()
