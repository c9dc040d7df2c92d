"""Tasks as rows: rules and parameters that count for every submit, and lanes that wait for who knows their task."""

from typing import Any

import msgspec
import pytest

from interlock.client.why import explain
from interlock.core.effective_policy import policy_of
from interlock.kernel.commands import DefineSchedule, DefineTask, DefineTemplate, FireSchedule, Register, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.parameters import Parameter
from interlock.plugins import make_engine
from interlock.plugins.tasks.queries import (
    count_open_tasks,
    find_unsound_definitions,
    read_task,
    read_tasks,
    read_waiting_inputs,
)
from interlock.store.queries.views import View, children_of, view
from tests.engine.test_archive import archive
from tests.engine.world import SECOND, World

TO, COPIES = Parameter("to", ("text",)), Parameter("copies", ("integer",), required=False)


def define(world: World, task: str = "mail", *, parameters: Any = None, **rules: Any) -> int:
    """Which version has these rules."""
    return world.send(DefineTask(work=Work(task=task, **rules), parameters=parameters)).version


def see(world: World, unit: int) -> View:
    return view(world.connection, 1, unit)


def rules_of(world: World, unit: int) -> dict[str, Any]:
    """By which rules a job is done."""
    row = see(world, unit)
    own = {"mutex": row.body.mutex, "limit_key": row.body.limit_key, "rate_key": row.body.rate_key}
    own |= {"queue": row.queue, "capabilities": row.capabilities, "priority": row.unit.priority}
    own |= {"labels": msgspec.json.decode(row.body.labels)} | msgspec.to_builtins(policy_of(row.body))
    return {name: value for name, value in own.items() if value}


EVERY_RULE: dict[str, Any] = {
    "queue": "post", "priority": 5, "capabilities": ("printer",), "mutex": "m", "limit_key": "l", "limit": 3,
    "rate_key": "r", "rate": 4, "rate_per_us": SECOND, "attempts": 7, "exhausted": "fail", "timeout_us": 60 * SECOND,
    "queue_timeout_us": 90 * SECOND, "backoff_us": SECOND, "backoff_cap_us": 9 * SECOND, "ttl_us": 60 * SECOND,
    "beat_us": 15 * SECOND, "sla_us": 50 * SECOND, "keep_us": 999 * SECOND, "labels": '{"team": "ops"}',
}  # fmt: skip
NOT_ALONE = ("limit", "rate")  # that a limit has a slot of that size is told by its key


def test_a_job_takes_every_rule_that_it_leaves_out(world: World) -> None:
    define(world, **EVERY_RULE)
    expected = {name: value for name, value in EVERY_RULE.items() if name not in NOT_ALONE}
    assert rules_of(world, world.submit()) == {**expected, "labels": {"team": "ops"}}


def test_what_a_job_says_itself_counts(world: World) -> None:
    define(world, **EVERY_RULE)
    own = {
        "queue": "own", "priority": 1, "capabilities": ("x",), "mutex": "own", "limit_key": "own", "limit": 1,
        "rate_key": "own", "rate": 1, "rate_per_us": 2 * SECOND, "attempts": 2, "exhausted": "exhaust",
        "timeout_us": 1 * SECOND, "queue_timeout_us": 2 * SECOND, "backoff_us": 3 * SECOND,
        "backoff_cap_us": 4 * SECOND, "ttl_us": 80 * SECOND, "beat_us": 20 * SECOND, "sla_us": 70 * SECOND,
        "keep_us": 8 * SECOND,
    }  # fmt: skip
    expected = {name: value for name, value in own.items() if name not in NOT_ALONE}
    unit = world.submit(**own, labels='{"team": "dev", "more": "yes"}')
    assert rules_of(world, unit) == {**expected, "labels": {"team": "dev", "more": "yes"}}


def test_a_rule_that_is_said_to_be_the_default_is_the_default(world: World) -> None:
    define(world, **EVERY_RULE)
    explicit = ("queue", "priority", "capabilities", "mutex", "limit", "rate", "ttl_us")
    rules = rules_of(world, world.submit(explicit=explicit))
    assert rules["queue"] == "default"
    assert not {"priority", "capabilities", "mutex", "limit_key", "rate_key", "rate_per_us", "ttl_us"} & rules.keys()
    assert rules["attempts"] == 7


def test_rules_that_belong_together_are_not_mixed(world: World) -> None:
    """A heartbeat of the task beside a lease of the job could be longer than that."""
    define(world, ttl_us=60 * SECOND, beat_us=28 * SECOND, backoff_us=SECOND, backoff_cap_us=2 * SECOND)
    rules = rules_of(world, world.submit(ttl_us=45 * SECOND, backoff_us=60 * SECOND))
    assert rules["ttl_us"] == 45 * SECOND
    assert rules["backoff_us"] == 60 * SECOND
    assert not {"beat_us", "backoff_cap_us"} & rules.keys()


def test_the_newest_version_counts_and_the_same_again_changes_nothing(world: World) -> None:
    assert define(world, attempts=3) == 1
    first = world.submit()
    assert [define(world, attempts=4), define(world, attempts=4), define(world, attempts=3)] == [2, 2, 3]
    assert define(world, "other") == 1
    assert [rules_of(world, unit)["attempts"] for unit in (first, world.submit())] == [3, 3]
    rows = read_tasks(world.connection, 1)
    assert [(row.name, row.version) for row in rows] == [("mail", 3), ("other", 1)]
    older = read_task(world.connection, 1, "mail", 2)
    assert older is not None
    assert older.rules == '{"attempts":4}'
    assert read_task(world.connection, 1, "mail", 9) is None


def test_a_definition_counts_for_other_processes_at_once(world: World) -> None:
    other = make_engine(world.connection, world.lifecycles)
    work = Work(task="mail")
    define(world, attempts=3)
    assert rules_of(world, other.send(Submit(work=(work,)))[0].unit)["attempts"] == 3
    define(world, attempts=4)
    assert rules_of(world, other.send(Submit(work=(work,)))[0].unit)["attempts"] == 4


def test_a_refusal_in_the_same_group_leaves_a_definition_as_it_is(world: World) -> None:
    define(world, attempts=3)
    define_then_fail = [
        world.engine.committer.put(DefineTask(work=Work(task="mail", attempts=9))),
        world.engine.committer.put(Submit(work=(Work(task="mail", attempts=0),))),
    ]
    while world.engine.committer.step():
        pass
    assert define_then_fail[0].result().version == 2
    with pytest.raises(InterlockError, match="attempts = 0 is not allowed"):
        define_then_fail[1].result()
    assert rules_of(world, world.submit())["attempts"] == 9
    assert list(find_unsound_definitions(world.connection)) == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ('{"too": "a"}', "it has no argument 'too'"),
        ("{}", "argument 'to' is missing"),
        ("null", "argument 'to' is missing"),
        ('{"to": 3}', "argument 'to': expected `str`, got `int`"),
        ('{"to": "a", "copies": "two"}', "argument 'copies': expected `int`, got `str`"),
        ('["a"]', "expected `object`, got `array`"),
        ("nonsense", "JSON is malformed"),
    ],
)
def test_wrong_arguments_are_refused_with_the_right_names(world: World, given: str, why: str) -> None:
    define(world, parameters=(TO, COPIES))
    before = world.count("unit")
    with pytest.raises(InterlockError) as refused:
        world.submit(input=given)
    assert why.lower() in str(refused.value).lower()
    assert "it takes to: text, copies: integer = …" in str(refused.value)
    assert world.count("unit") == before


def test_of_many_jobs_each_is_checked(world: World) -> None:
    define(world, parameters=(TO,))
    works = tuple(Work(task="mail", input=f'{{"{name}": "a"}}') for name in ("to",) * 9 + ("wrong",))
    with pytest.raises(InterlockError, match="it has no argument 'wrong'"):
        world.send(Submit(work=works))
    assert len(world.send(Submit(work=works[:9]))) == 9


def test_a_task_without_parameters_takes_none_and_one_without_a_list_takes_anything(world: World) -> None:
    define(world, "none", parameters=())
    define(world, "any")
    assert see(world, world.submit("none")).body.input == "null"
    with pytest.raises(InterlockError, match="it takes no arguments"):
        world.submit("none", input='{"a": 1}')
    assert see(world, world.submit("any", input="[1]")).body.input == "[1]"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"work": Work(task="")}, "task = '' is not allowed"),
        ({"work": Work(task="t", key="k")}, "the rules of a task have no key"),
        ({"work": Work(task="t", input="{}")}, "the rules of a task have no input"),
        ({"work": Work(task="t", attempts=0)}, "attempts = 0 is not allowed"),
        ({"work": Work(task="t", labels="[]")}, "labels are a JSON object"),
        ({"work": Work(task="t"), "parameters": (TO, TO)}, "the parameter 'to' is not allowed"),
        ({"work": Work(task="t"), "parameters": (Parameter("a b"),)}, "the parameter 'a b' is not allowed"),
        ({"work": Work(task="t"), "parameters": (Parameter("a", ()),)}, "parameter 'a' takes nothing"),
    ],
)
def test_a_definition_that_could_never_hold_is_refused(world: World, facts: dict[str, Any], why: str) -> None:
    with pytest.raises(InterlockError, match=why):
        world.send(DefineTask(**facts))
    assert read_tasks(world.connection, 1) == []


def test_tenants_have_tasks_of_their_own(world: World) -> None:
    world.send(DefineTask(tenant=2, work=Work(task="mail", attempts=9), parameters=(TO,)))
    assert "attempts" not in rules_of(world, world.submit())
    with pytest.raises(InterlockError, match="argument 'to' is missing"):
        world.send(Submit(tenant=2, work=(Work(task="mail"),)))


# By every way in.


def test_a_schedule_takes_the_rules_of_the_task_and_its_arguments_are_checked(world: World) -> None:
    define(world, parameters=(TO,), queue="post", attempts=7)
    world.send(DefineSchedule(name="daily", timing="every 1h", work=Work(task="mail", input='{"to": "a"}')))
    unit = world.send(FireSchedule(name="daily")).unit
    assert (rules_of(world, unit)["queue"], rules_of(world, unit)["attempts"]) == ("post", 7)
    world.send(DefineSchedule(name="wrong", timing="every 1h", work=Work(task="mail", input='{"too": "a"}')))
    with pytest.raises(InterlockError, match="it has no argument 'too'"):
        world.send(FireSchedule(name="wrong"))


def test_a_step_of_a_template_takes_the_rules_of_its_task(world: World) -> None:
    define(world, parameters=(TO,), queue="post", attempts=7)
    steps = (Work(task="mail", lifecycle="step", ref="first"),)
    world.send(DefineTemplate(name="flow", steps=steps))
    (run,) = world.send(Submit(work=(Work(task="flow", lifecycle="workflow_run", template="flow"),)))
    (step,) = children_of(world.connection, 1, run.unit)
    assert (rules_of(world, step.unit.id)["queue"], rules_of(world, step.unit.id)["attempts"]) == ("post", 7)


def test_a_run_that_is_called_like_a_task_is_none_of_its_jobs(world: World) -> None:
    define(world, "flow", parameters=(TO,), queue="post")
    (run,) = world.send(Submit(work=(Work(task="flow", lifecycle="workflow_run", input="{}"),)))
    assert rules_of(world, run.unit)["queue"] == "default"


# Who knows a task.


def test_a_worker_is_given_the_tasks_that_it_knows_and_no_other(world: World) -> None:
    mails, others = [world.submit() for _ in range(3)], [world.submit("print") for _ in range(2)]
    knowing = world.worker("knowing", tasks=("mail", "more"))
    assert [grant.unit for grant in world.claim(knowing, 9)] == mails
    assert world.claim(world.worker("none", tasks=()), 9) == []
    assert [grant.unit for grant in world.claim(world.worker("any"), 9)] == others


def test_known_tasks_and_capabilities_are_both_needed(world: World) -> None:
    unit = world.submit(capabilities=("gpu",))
    assert world.claim(world.worker("a", tasks=("mail",)), 9) == []
    assert world.claim(world.worker("b", capabilities=("gpu",), tasks=("print",)), 9) == []
    able = world.worker("c", capabilities=("gpu",), tasks=("mail",))
    assert [grant.unit for grant in world.claim(able, 9)] == [unit]


def test_the_most_urgent_comes_first_whatever_its_task(world: World) -> None:
    units = [world.submit(f"t{place % 3}", priority=place % 5) for place in range(15)]
    worker = world.worker(tasks=("t0", "t1", "t2"))
    wanted = sorted(units, key=lambda unit: (-see(world, unit).unit.priority, unit))
    assert [grant.unit for grant in world.claim(worker, 10)] == wanted[:10]


def test_a_name_with_a_comma_is_one_name(world: World) -> None:
    unit = world.submit("a,b")
    assert world.claim(world.worker("w", tasks=("a", "b")), 9) == []
    assert [grant.unit for grant in world.claim(world.worker("x", tasks=("a,b",)), 9)] == [unit]


def test_a_task_that_no_worker_knows_waits_and_why_says_so(world: World) -> None:
    unit = world.submit("strange")
    for name in ("one", "two"):
        world.claim(world.worker(name, tasks=("mail", "print")), 9)
    why = explain(world.connection, 1, world.lifecycles, unit)
    assert why.reason == "task_unknown"
    assert why.answer.endswith("waits: no worker of queue 'default' knows the task 'strange'")
    assert "one knows mail, print" in why.details
    worker = world.worker("three", tasks=("strange",))
    assert [grant.unit for grant in world.claim(worker, 9)] == [unit]


def test_what_undoes_a_step_waits_for_who_knows_it(world: World) -> None:
    first = Work(task="build", lifecycle="step", ref="build", undo="unbuild", queue="q", capabilities=("gpu",))
    second = Work(task="fails", lifecycle="step", ref="fails", needs=("build",), attempts=1)
    world.send(DefineTemplate(name="flow", steps=(first, second)))
    world.send(Submit(work=(Work(task="flow", lifecycle="workflow_run", template="flow"),)))
    worker = world.worker("w", capabilities=("gpu",), tasks=("build", "fails"))
    world.finish(world.claim(worker, queues=("q",))[0])
    (grant,) = world.claim(worker)
    world.start(grant)
    world.finish(grant, ended="failure", error_class="PermanentError")
    assert world.claim(worker, 9, queues=("q", "default")) == []
    undoer = world.worker("u", capabilities=("gpu",), tasks=("unbuild",))
    assert [grant.task for grant in world.claim(undoer, 9, queues=("q", "default"))] == ["unbuild"]


def test_a_wrong_name_among_known_tasks_is_refused(world: World) -> None:
    with pytest.raises(InterlockError, match="a task = '' is not allowed"):
        world.worker(tasks=("mail", ""))


# What waits and runs.


def test_what_waits_and_runs_is_counted_by_task_and_queue(world: World) -> None:
    world.submit()
    for facts in ({"delay_us": SECOND}, {"queue": "post"}, {"mutex": "m"}, {"mutex": "m"}):
        world.submit(**facts)
    done = world.submit("print")
    (grant,) = world.claim(world.worker("p", tasks=("print",)))
    assert grant.unit == done
    world.start(grant)
    counts = count_open_tasks(world.connection, 1)
    assert [msgspec.structs.astuple(count) for count in counts] == [
        ("mail", "default", 4, 0), ("mail", "post", 1, 0), ("print", "default", 0, 1),
    ]  # fmt: skip
    world.finish(grant)
    assert [count.task for count in count_open_tasks(world.connection, 1)] == ["mail", "mail"]


def test_the_arguments_of_what_waits_are_read(world: World) -> None:
    first = world.submit(input='{"to": "a"}')
    later = world.submit(input='{"to": "b"}', delay_us=SECOND)
    inputs = read_waiting_inputs(world.connection, 1, "mail")
    assert [(job.unit, job.input, job.of_run) for job in inputs] == [
        (first, '{"to": "a"}', False), (later, '{"to": "b"}', False),
    ]  # fmt: skip
    assert [job.unit for job in read_waiting_inputs(world.connection, 1, "mail", 1)] == [first]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("UPDATE task_definition SET rules = '{}' WHERE version = 2", "it is not what was defined"),
        ("DELETE FROM task_definition WHERE version = 1", "the version before it is missing"),
        ("UPDATE task_definition SET parameters = 'x' WHERE version = 2", "it cannot be read"),
    ],
)
def test_a_definition_that_somebody_damaged_is_found(world: World, sql: str, why: str) -> None:
    define(world, attempts=3)
    define(world, attempts=4)
    assert list(find_unsound_definitions(world.connection)) == []
    world.connection.rows(sql)
    assert any(why in text for _, text in find_unsound_definitions(world.connection))


def test_a_job_is_kept_as_long_as_its_task_says(world: World) -> None:
    define(world, keep_us=100 * SECOND)
    unit = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.finish(grant)
    world.pass_time(50)
    with pytest.raises(InterlockError, match=r"job_.* is kept for 1m 40s after its end, 50s ago"):
        archive(world, unit)
    world.pass_time(60)
    archive(world, unit)


def test_a_program_that_gets_further_tasks_is_given_their_jobs(world: World) -> None:
    """The same registration again, with other tasks, changes what the worker is given, and makes no second worker."""
    unit, facts = world.submit("late"), {"name": "w", "incarnation": "1", "capacity": 10}
    worker = world.send(Register(**facts, tasks=("early",)))
    assert world.claim(worker) == []
    assert world.send(Register(**facts, tasks=("early", "late"))) == worker
    assert [grant.unit for grant in world.claim(worker)] == [unit]
