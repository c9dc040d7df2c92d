"""Jobs that are commands: what is refused, who gets them, and what the law says of them."""

from typing import Any

import msgspec
import pytest

from interlock.audit.laws import audit
from interlock.kernel.commands import DefineSchedule, DefineTemplate, FireSchedule, Rerun, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.plugins import STANDARD
from tests.engine.tamper import behind_the_guard
from tests.engine.world import World
from tests.store.databases import declare


def command(text: str = "make test", **options: Any) -> dict[str, Any]:
    """The fields of work that is a command."""
    said = msgspec.json.encode({"shell": {"command": text, **options}}).decode()
    return {"task": "shell", "capabilities": ("shell",), "options": said}


def test_a_worker_without_the_capability_gets_no_command(world: World) -> None:
    job = world.submit(**command())
    plain = world.submit("mail")
    assert [grant.unit for grant in world.claim(world.worker("plain"), limit=9)] == [plain]
    assert world.claim(world.worker("gpu", capabilities=("gpu",)), limit=9) == []
    (grant,) = world.claim(world.worker("shell", capabilities=("shell",)), limit=9)
    assert grant.unit == job
    assert msgspec.json.decode(grant.options or "") == {"shell": {"command": "make test"}}


def test_a_plain_job_is_handed_over_without_options(world: World) -> None:
    world.submit("mail")
    (grant,) = world.claim(world.worker())
    assert grant.options is None


def test_a_job_that_is_done_again_is_the_same_command_for_the_same_workers(world: World) -> None:
    job = world.submit(**command(), attempts=1)
    (grant,) = world.claim(world.worker("shell", capabilities=("shell",)))
    world.start(grant)
    world.finish(grant, ended="failure", error="exit code 1")
    again = world.send(Rerun(unit=job)).unit
    assert world.claim(world.worker("plain"), limit=9) == []
    (grant,) = world.claim(world.worker("other", capabilities=("shell",)))
    assert (grant.unit, "make test" in (grant.options or "")) == (again, True)


def test_a_step_and_a_schedule_can_be_commands(world: World) -> None:
    step = Work(**command("make ship"), lifecycle="step", ref="ship")
    world.send(DefineTemplate(name="release", steps=(step,)))
    world.submit("release", lifecycle="workflow_run", template="release", input='{"version": "1.2"}')
    world.send(DefineSchedule(name="nightly", timing="0 3 * * *", work=Work(**command("make clean"))))
    world.send(FireSchedule(name="nightly"))
    assert world.claim(world.worker("plain"), limit=9) == []
    grants = world.claim(world.worker("shell", capabilities=("shell",)), limit=9)
    assert sorted(msgspec.json.decode(grant.options or "")["shell"]["command"] for grant in grants) == [
        "make clean",
        "make ship",
    ]


WRONG = [
    ({"capabilities": ()}, "on workers with the capability 'shell'"),
    ({"capabilities": ("shells",)}, "on workers with the capability 'shell'"),
    ({"task": "mail"}, "a command is run by the task 'shell'"),
    ({"lifecycle": "approval"}, "a approval runs no command"),
    ({"options": '{"shell": {}}'}, "missing required field `command`"),
    ({"options": '{"shell": {"command": 7}}'}, "option 'shell'"),
    ({"options": '{"shell": {"command": "a", "user": "root"}}'}, "unknown field `user`"),
    ({"options": '{"shell": "make test"}'}, "option 'shell'"),
    (command(""), "1 to 65,536 characters"),
    (command("  \n"), "1 to 65,536 characters"),
    (command("x" * 65_537), "1 to 65,536 characters"),
    (command("a\0b"), "without NUL"),
    (command(environment={"A-B": "1"}), "the name 'A-B' is not allowed"),
    (command(environment={"1A": "1"}), "the name '1A' is not allowed"),
    (command(environment={"": "1"}), "the name '' is not allowed"),
    (command(environment={"INTERLOCK_JOB": "1"}), "not INTERLOCK_"),
    (command(environment={"A": "\0"}), "the value of A has a NUL"),
    (command(environment={"A": "x" * 70_000}), "70,001 characters are not allowed; allowed are 65,536"),
    (command(environment={"A": 1}), "option 'shell'"),
    (command(directory="/etc"), "allowed is one below the worker's"),
    (command(directory="a/../../b"), "allowed is one below the worker's"),
    (command(limits={"seconds": 3}), "there is no limit 'seconds'; there are grace_seconds, output_bytes"),
    (command(limits={"memory_bytes": 0}), "memory_bytes = 0 is not allowed"),
    (command(limits={"memory_bytes": 1.5}), "memory_bytes = 1.5 is not allowed"),
    (command(limits={"grace_seconds": -1}), "grace_seconds = -1 is not allowed"),
]


@pytest.mark.parametrize(("fields", "why"), WRONG)
def test_a_command_that_could_not_be_run_is_refused_by_every_way_in(
    fields: dict[str, Any], why: str, world: World
) -> None:
    work = {**command(), **fields}
    with pytest.raises(InterlockError, match=why):
        world.send(Submit(work=(Work(**work),)))
    with pytest.raises(InterlockError, match=why):
        world.send(DefineSchedule(name="nightly", timing="0 3 * * *", work=Work(**work)))
    with pytest.raises(InterlockError, match=why):
        world.send(DefineTemplate(name="t", steps=(Work(**{"lifecycle": "step", **work}, ref="s"),)))
    assert world.count("unit") == 0


def test_a_command_that_any_worker_could_claim_breaks_the_law(world: World, server: str) -> None:
    """As if somebody had changed the row, or a reaction had made it elsewhere. The one that is held breaks it too."""
    job = world.submit("mail")
    rows = {"policy": msgspec.json.encode({"options": command()["options"]}).decode(), "unit": job}
    world.claim(world.worker())
    with behind_the_guard(world.connection, server) as owner:
        declare(owner, 1)
        owner.rows("UPDATE body SET policy = :policy WHERE unit = :unit", rows)
    declare(world.connection, 1)
    broken = str(list(audit(world.connection, world.lifecycles, laws=STANDARD.laws)))
    assert "it is a command, and asks for the capabilities '' alone" in broken
    assert "it is a command, and is held by a worker that runs none" in broken


def test_a_key_stands_for_one_command(world: World) -> None:
    work, other = Work(**command("make"), key="k"), command("make all")["options"]
    first = world.send(Submit(work=(work,)))[0]
    again = world.send(Submit(work=(work,)))[0]
    assert (again.unit, again.created) == (first.unit, False)
    with pytest.raises(InterlockError, match=r"IDEMPOTENCY_CONFLICT: key 'k' is that of job_\w+, with another command"):
        world.send(Submit(work=(msgspec.structs.replace(work, options=other),)))
    fresh = msgspec.structs.replace(work, options=other, on_duplicate="replace")
    assert world.send(Submit(work=(fresh,)))[0].created
