"""A unit is made while what it needs succeeds, in one transaction: the need is counted once (seed 1006)."""

from interlock.audit.laws import audit
from interlock.kernel.commands import Finish, Outcome, Submit, Work
from tests.engine.conftest import world as world
from tests.engine.test_random_commands import ask_together
from tests.engine.world import World, held
from tests.store.databases import declare


def test_what_succeeds_in_the_same_transaction_meets_a_need_once(world: World) -> None:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    finish = Finish(outcomes=(Outcome(held=held(grant)),))
    later = Submit(work=(Work(task="later", after=(job,)), Work(task="ended", after_end=(job,))))
    ended, made = ask_together(world, [finish, later])
    assert ended[0].accepted
    for each in made:
        unit = world.unit(each.unit)
        assert (unit.unmet, unit.state) == (0, "queued")
        assert unit.available_at is not None
    declare(world.connection, 1)
    assert list(audit(world.connection, world.lifecycles)) == []
