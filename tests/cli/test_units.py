"""Looking at units and acting on them by the command line, on a file and on PostgreSQL."""

import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from interlock.cli.main import app
from interlock.client.durations import format_time
from interlock.core.committer import IDS_PER_ROW
from interlock.kernel.commands import DefineSchedule, PauseSchedule, Record, Submit, Work
from interlock.kernel.ids import parse_id
from interlock.store.sqlite import SqliteConnection
from tests.cli.inside import Ask, inside
from tests.cli.places import Place
from tests.conftest import COMMAND, ROOT, Run
from tests.engine.world import SECOND, World, held


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """The command on a file that is not there yet."""
    return inside(f"sqlite:///{tmp_path}/new.db")


# Submitting.


def test_what_is_submitted_is_there_as_it_was_said(ask: Ask) -> None:
    name = ask(
        "submit", "send", "--arg", "to=a@b.c", "--arg", "n=3", "--key", "k", "--queue", "mail", "--delay", "1h", "--priority", 7,
        "--cap", "gpu", "--label", "team=x", "--correlation", "c1", "--mutex", "m", "--attempts", 2, "--timeout", "2m",
    ).out.strip()  # fmt: skip
    seen = ask("show", name, "--json").json
    assert (seen["id"], seen["task"], seen["queue"], seen["key"], seen["priority"]) == (name, "send", "mail", "k", 7)
    assert seen["input"] == {"to": "a@b.c", "n": 3}
    assert (seen["capabilities"], seen["labels"], seen["correlation"]) == (["gpu"], {"team": "x"}, "c1")
    assert (seen["mutex"], seen["policy"]) == ("m", {"attempts": 2, "timeout_us": 120 * SECOND})
    assert seen["available_at"] is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", seen["due_at"])
    again = ask("submit", "send", "--input", '{"to":"a@b.c","n":3}', "--key", "k", "--json").json
    assert again == {"id": name, "created": False, "replaced": False, "state": "queued"}
    assert ask("submit", "send", "--arg", "n=4", "--key", "k", "--json").err.startswith("IDEMPOTENCY_CONFLICT")


def test_a_tree_is_submitted_piece_by_piece(ask: Ask) -> None:
    run = ask("submit", "flow", "--lifecycle", "workflow_run").out.strip()
    first = ask("submit", "a", "--lifecycle", "step", "--parent", run).out.strip()
    second = ask("submit", "b", "--lifecycle", "step", "--parent", run, "--need", first).out.strip()
    seen = ask("show", run, "--json").json
    assert [(one["id"], one["depth"], one["parent"]) for one in seen["children"]] == [(first, 1, run), (second, 1, run)]
    need = {"id": first, "state": "PENDING", "name": "a", "met_by": "success"}
    assert ask("show", second, "--json").json["needs"] == [need]
    text = ask("show", run).out
    assert f"1\t{first}\ta\tPENDING" in text


def test_a_step_has_a_name_in_its_run_and_is_meant_by_it(ask: Ask) -> None:
    run = ask("submit", "flow", "--lifecycle", "workflow_run").out.strip()
    step = ("submit", "ship", "--lifecycle", "step", "--parent", run, "--step", "ship it", "--after-step", "build")
    made = ask(*step).out.strip()
    assert ask(*step, "--json").json == {"id": made, "created": False, "replaced": False, "state": "PENDING"}
    assert ask("show", f"{run}/ship it", "--json").json["id"] == made
    assert "'build' (yet to come)" in ask("why", f"{run}/ship it").out
    assert "yet to come" in ask("show", made).out
    missing = ask("why", f"{run}/build")
    assert (missing.code, missing.err) == (2, f"{run} has no child 'build'; it has 'ship it'")
    end = ask("submit", "tidy", "--after-end", f"{run}/ship it").out.strip()
    assert ask("cancel", f"{run}/ship it").code == 0
    assert ask("show", end, "--json").json["needs_unmet"] == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--arg", "to"), "--arg 'to' is not allowed; allowed is NAME=VALUE"),
        (("--input", "{"), "--input is not JSON"),
        (("--input", "1", "--arg", "a=1"), "give --arg or --input, not both"),
        (("--delay", "soon"), "--delay: 'soon' is not a duration; allowed is a number and one of ms, s"),
        (("--at", "noon"), "--at 'noon' is not a time; allowed is 2030-01-31T08:00:00Z"),
        (("--at", "2030-01-31T08:00:00"), "allowed is a datetime with a time zone"),
        (("--lifecycle", "jobb"), "there is no lifecycle 'jobb'; there are "),
        (("--on-duplicate", "ignore"), "on_duplicate = 'ignore' is not allowed; allowed are return, reject, replace"),
        (("--parent", "job_zzz"), "no job, run or step 'job_zzz'"),
        (("--db", "sqlite://:memory:"), "a database in memory ends with its process; name a file"),
    ],
)
def test_a_wrong_submit_is_told_what_is_right(args: tuple[str, ...], said: str, ask: Ask) -> None:
    done = ask("submit", "send", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


# Looking.


def test_a_verb_that_only_looks_makes_no_database(tmp_path: Path) -> None:
    ask = inside(f"sqlite:///{tmp_path}/none.db")
    for verb in (
        ["list"], ["show", "1"], ["events", "1"], ["why", "1"], ["watch"], ["cancel", "1"], ["dead", "list"], ["dead", "show", "1"],
        ["dead", "requeue", "1"], ["dead", "purge", "1"], ["worker", "list"], ["worker", "drain", "w"], ["archive", "--all"],
    ):  # fmt: skip
        done = ask(*verb)
        assert (done.code, done.out) == (2, ""), verb
        assert "there is no database" in done.err
    assert list(tmp_path.iterdir()) == []
    SqliteConnection(f"{tmp_path}/other.db").close()
    assert "the schema is not the present one" in inside(f"sqlite:///{tmp_path}/other.db")("list").err


def test_a_list_is_filtered_and_paged(place: Place) -> None:
    world, ask = place.world, place.ask
    jobs = [world.submit("mail", key=f"k{n}", correlation="c", queue="q") for n in range(3)]
    other = world.submit("web")
    worker = world.worker("w", capacity=1)
    world.claim(worker, queues=("q",))
    names = [f"job_{n}" for n in (*jobs, other)]
    assert [row[0] for row in ask("list", "--lifecycle", "job").rows] == names[::-1]
    assert [row[0] for row in ask("list", "--limit", 2, "--after", names[3]).rows] == [names[2], names[1]]
    assert ask("list", "--limit", 2, "--json").json["more"] is True
    for args, wanted in {
        ("--task", "web"): [names[3]],
        ("--queue", "q", "--state", "queued"): [names[2], names[1]],
        ("--category", "held"): [names[0]],
        ("--worker", "w"): [names[0]],
        ("--key", "k1"): [names[1]],
        ("--correlation", "c", "--limit", "1"): [names[2]],
        ("--state", "queued", "--state", "assigned", "--queue", "q"): names[2::-1],
        ("--parent", names[0]): [],
        ("--error", "it broke"): [],  # nothing has an error yet
        ("--tenant", "2"): [],
    }.items():
        assert [one["id"] for one in ask("list", *args, "--json").json["units"]] == wanted, args


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("list", "--state", "nowhere"), "there is no state 'nowhere'; there are queued, "),
        (
            ("list", "--state", "idle", "--lifecycle", "job"),
            "there is no state 'idle'; there are queued, assigned, running, succeeded, failed, cancelled, dead_lettered",
        ),
        (("list", "--category", "open"), "there is no category 'open'; there are waiting, ready, held,"),
        (("list", "--lifecycle", "jobs"), "there is no lifecycle 'jobs'; there are "),
        (("show", "task_1"), "no job, run or step 'task_1'; did you mean job_1?"),
        (("show", "job_zz"), "no job, run or step 'job_zz'"),
        (("why", "nonsense!"), "'nonsense!' is no id; one looks like job_4r1"),
        (("events", "12"), "'12' may mean job_c or job_12; give the whole id"),
        (("cancel",), "which jobs? Give ids, a filter such as --task NAME, or --all"),
        (("cancel", "1", "--all"), "give ids, or a filter, or --all: not two of them"),
        (("dead", "requeue"), "which jobs? Give ids"),
        (("dead", "requeue", "--code", "boredom"), "there is no reason code 'boredom'; there are parse_error, "),
        (("dead", "purge", "--all"), "a file is needed that holds them: --out FILE"),
        (("dead", "show", "1"), "job_1 is no dead letter: it is queued"),
        (("dead", "purge", "1", "--out", "x"), "job_1 is no dead letter: it is queued"),
        (("archive", "--out", "x"), "which jobs? Give --older DURATION, a filter such as --task NAME, or --all"),
        (("archive", "--older", "long"), "--older: 'long' is not a duration"),
        (("worker", "drain"), "which workers? Give names or ids, or --all"),
        (("worker", "drain", "bob"), "there is no worker 'bob'; there are ann"),
        (("watch", "job_1", "--for", "ever"), "--for: 'ever' is not a duration"),
    ],
)
def test_errors_teach(args: tuple[str, ...], said: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "teach"
    ask = inside(f"sqlite:///{folder}/work.db")
    if not folder.exists():
        folder.mkdir()
        ask("db", "upgrade")
        connection = SqliteConnection(f"{folder}/work.db")
        world = World(connection)
        world.send(Submit(work=(Work(task="t"),) * 40))
        world.worker("ann")
        connection.close()
    done = ask(*args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_unit_is_shown_with_all_that_is_known(place: Place) -> None:
    world, ask = place.world, place.ask
    job = world.submit("mail", input='{"to":"x"}')
    (grant,) = world.claim(world.worker("w"))
    world.start(grant)
    world.send(Record(held=(held(grant),), kind="progress", payload='{"done":0.5,"text":"half"}'))
    world.send(Record(held=(held(grant),), kind="artifact", name="report", payload='"text"'))
    name = f"job_{job}"
    seen = ask("show", name, "--json").json
    assert seen["lease"]["worker"] == seen["worker"] == "w"
    assert (seen["lease"]["state"], seen["lease"]["fence"]) == ("ACTIVE", 1)
    assert [(one["kind"], one["payload"]) for one in seen["notes"]] == [("progress", {"done": 0.5, "text": "half"})]
    assert [(one["name"], one["data"]) for one in seen["artifacts"]] == [("report", "text")]
    text = ask("show", str(job)).out
    for line in ("state\trunning", "lease_worker\tw", 'input\t{"to":"x"}', "NOTES", "ARTIFACTS"):
        assert line in text
    assert [row[2:5] for row in ask("events", name).rows] == [
        ["job_queued", "", "queued"], ["job_claimed", "queued", "assigned"], ["job_started", "assigned", "running"],
    ]  # fmt: skip
    told = ask("events", name, "--after", 2, "--json").json["events"]
    assert [(one["unit"], one["version"], one["from"], one["to"]) for one in told] == [(name, 3, "assigned", "running")]
    assert ask("why", name).out.startswith(f"{name}: the lease of w expired at 2023-")
    assert ask("why", name, "--json").json["reason"] == "lease_over"


def test_why_knows_schedules_too(place: Place) -> None:
    place.world.send(DefineSchedule(name="nightly", timing="0 2 * * *", timezone="UTC", work=Work(task="report")))
    assert place.ask("why", "nightly", "--json").json["reason"] == "scheduled"
    place.world.send(PauseSchedule(name="nightly", actor="eve"))
    assert place.ask("why", "nightly").out.startswith("schedule nightly was paused by eve at 2023-11-14")


# Acting.


def test_units_are_cancelled_by_id_and_by_filter(place: Place) -> None:
    world, ask = place.world, place.ask
    jobs = [world.submit("mail"), world.submit("mail"), world.submit("web")]
    names = [f"job_{one}" for one in jobs]
    plan = ask("cancel", "--task", "mail", "--dry-run", "--json").json
    assert ([one["id"] for one in plan["units"]], plan["dry_run"]) == (names[:2], True)
    assert world.unit(jobs[0]).state == "queued"
    assert "2 asked to stop, 0 refused" in ask("cancel", "--task", "mail", "--reason", "enough").out
    assert (world.events(jobs[0])[-1].actor, world.events(jobs[0])[-1].reason) == ("ann", "enough")
    (grant,) = world.claim(world.worker("w"))
    world.start(grant)
    assert ask("cancel", names[2], "--json").json["units"][0] == {
        "id": names[2], "state": "running", "applied": True, "refused": None,
    }  # fmt: skip
    assert ask("cancel", names[2], "--hard").out.startswith(f"{names[2]}: asked to stop; it is cancelled")
    assert ask("cancel", "--all").out == "0 asked to stop, 0 refused\n"


def test_a_cancel_that_is_refused_is_named_and_the_others_are_done(place: Place) -> None:
    dead, job = place.dead(), place.world.submit()
    done = place.ask("cancel", f"job_{job}", f"job_{dead}", "--json")
    assert done.code == 1
    assert [(one["applied"], bool(one["refused"])) for one in done.json["units"]] == [(True, False), (False, True)]


def test_a_tree_is_cancelled_by_a_filter_without_a_complaint(place: Place) -> None:
    work = (Work(task="f", lifecycle="workflow_run", ref="r"), Work(task="s", lifecycle="step", parent="r"))
    run, step = (made.unit for made in place.world.send(Submit(work=work)))
    done = place.ask("cancel", "--all")
    assert (done.code, done.out.splitlines()[-1]) == (0, "2 asked to stop, 0 refused")
    assert place.world.unit(run).category == place.world.unit(step).category == "cancelled"


def test_dead_letters_are_listed_and_shown(place: Place) -> None:
    one, other = (f"job_{place.dead(task):x}" for task in ("mail", "web"))
    assert [row[1:5] for row in place.ask("dead", "list").rows] == [
        ["web", "exhausted_retries", "fetch", "1"], ["mail", "exhausted_retries", "fetch", "1"],
    ]  # fmt: skip
    (told,) = place.ask("dead", "list", "--task", "mail", "--json").json["dead"]
    assert (told["reason_code"], told["last_error"], told["last_owner"]) == ("exhausted_retries", "no such host", "w")
    text = place.ask("dead", "show", told["id"]).out
    assert "reason_code\texhausted_retries" in text
    assert f"interlock dead-letters requeue {told['id']}" in text
    assert one != other


def test_a_dead_letter_is_requeued_once(place: Place) -> None:
    ask = place.ask
    place.dead("mail", input="7")
    place.dead("web")
    assert ask("dead", "requeue", "--code", "timeout").out == "0 requeued, 0 refused\n"
    assert ask("dead", "requeue", "--task", "mail", "--dry-run").out.endswith("1 would be requeued, 0 refused\n")
    (first,) = ask("dead", "requeue", "--task", "mail", "--json").json["units"]
    assert first["created"]
    fresh = ask("show", first["new"], "--json").json
    assert (fresh["state"], fresh["input"], fresh["retry_of"]) == ("queued", 7, first["id"])
    done = ask("dead", "requeue", "--all")
    assert done.out.splitlines()[0] == f"{first['id']}: requeued before, as {first['new']}"
    assert done.out.splitlines()[-1] == "1 requeued, 0 refused"
    assert ask("dead", "requeue", first["id"], "--again", "--json").json["units"][0]["created"]
    assert len(ask("list", "--state", "queued", "--json").json["units"]) == 3
    done = ask("dead", "requeue", first["new"])
    assert (done.code, "no 'requeue' from 'queued'" in done.out) == (1, True)


def test_the_last_lease_is_told_also_of_what_has_ended(place: Place) -> None:
    world = place.world
    job = world.submit(attempts=2)
    for ended in ("failure", "success"):
        world.pass_time(60)
        world.tick()
        (grant,) = world.claim(world.worker(ended))
        world.start(grant)
        world.finish(grant, ended=ended)
    told = place.ask("show", job, "--json").json["lease"]
    assert told == {"state": "COMPLETED", "worker": None, "fence": 2, "until": format_time(grant.until)}


def test_dead_letters_are_purged_into_a_file_that_holds_them(place: Place, tmp_path: Path) -> None:
    ask, file = place.ask, tmp_path / "dead.jsonl"
    dead, other = place.dead("mail"), place.dead("web")
    assert ask("dead", "purge", "--task", "mail", "--dry-run").out.endswith("1 tree would be archived\n")
    told = ask("dead", "purge", "--task", "mail", "--out", file, "--json").json
    assert (told["units"], told["file"], told["left"]) == (1, str(file), [])
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    acts = [line for line in lines if line["table"] == "act"]
    assert lines[: len(acts)] == acts
    assert {unit for act in acts for unit in act["units"]} == {dead}
    assert [line["table"] for line in lines[len(acts) :][:2]] == ["unit", "body"]
    assert (lines[-1]["table"], lines[-1]["unit"], lines[-1]["units"]) == ("tree", dead, 1)
    assert ask("show", told["trees"][0]).err == f"'{told['trees'][0]}' was archived in '{file}'"
    assert place.world.unit(other).category == "dead"
    assert "exists; an archive is not written over" in ask("dead", "purge", "--all", "--out", file).err
    assert ask("audit").code == 0


def test_what_ended_long_ago_is_archived_and_what_is_needed_stays(place: Place, tmp_path: Path) -> None:
    ask, world = place.ask, place.world
    done, needed, open_one = world.submit(), world.submit(), world.submit()
    for one in (done, needed):
        world.cancel(one)
    world.submit(after_end=(needed,))
    assert ask("archive", "--older", "100d", "--dry-run", "--json").json["trees"] == [f"job_{done}", f"job_{needed}"]
    assert ask("archive", "--older", "36500d", "--out", tmp_path / "none").out == "nothing to archive\n"
    told = ask("archive", "--older", "100d", "--out", tmp_path / "old.jsonl", "--json")
    assert (told.code, told.json["trees"], told.json["units"]) == (1, [f"job_{done}"], 1)
    assert "has not ended and needs one of these" in told.json["left"][0]["why"]
    assert world.unit(open_one).state == "queued"
    assert ask("audit").code == 0


def test_a_file_that_cannot_be_written_deletes_nothing(place: Place, tmp_path: Path) -> None:
    dead = place.dead()
    assert "the folder of" in place.ask("dead", "purge", "--all", "--out", tmp_path / "no" / "x").err
    assert "exists" in place.ask("dead", "purge", "--all", "--out", tmp_path).err
    assert place.world.unit(dead).category == "dead"


def test_a_worker_that_went_silent_is_listed_as_such(place: Place) -> None:
    """It held a job and said nothing until the lease was over: it is neither idle nor called done."""
    world = place.world
    job = world.submit()
    (grant,) = world.claim(world.worker("quiet", concurrency=7))
    world.start(grant)
    world.pass_time(600)
    world.tick()
    assert world.unit(job).state == "queued"
    ((name, state),) = [row[1:3] for row in place.ask("worker", "list", "--gone").rows]
    assert (name, state.startswith("unresponsive, silent since ")) == ("quiet", True), state
    (told,) = place.ask("worker", "list", "--gone", "--json").json["workers"]
    assert (told["state"], told["concurrency"]) == ("unresponsive", 7)


def test_workers_are_listed_and_drained(place: Place) -> None:
    world, ask = place.world, place.ask
    world.submit()
    busy, idle = world.worker("busy", capabilities=("gpu",)), world.worker("idle")
    world.claim(busy)
    told = {one["name"]: one for one in ask("worker", "list", "--json").json["workers"]}
    assert (told["busy"]["holding"], told["busy"]["queues"], told["busy"]["capabilities"]) == (1, ["default"], ["gpu"])
    assert ask("worker", "drain", "--all", "--dry-run").out.endswith("2 workers would be drained\n")
    assert ask("worker", "drain", "busy", told["idle"]["id"]).out.endswith("2 workers drained\n")
    assert [row[1:3] for row in ask("worker", "list").rows] == [["busy", "busy, draining"]]
    assert [row[1] for row in ask("worker", "list", "--gone").rows] == ["busy", "idle"]
    assert world.unit(idle).category == "closed"


# Watching.


def test_a_watch_that_is_piped_tells_each_change_once_and_ends_with_the_unit(place: Place) -> None:
    dead = place.dead()
    done = place.ask("watch", f"job_{dead}")
    assert done.code == 1
    assert [line.split("\t")[2] for line in done.out.splitlines()] == [
        "job_queued", "job_claimed", "job_started", "job_dead_lettered",
    ]  # fmt: skip
    assert [json.loads(line)["to"] for line in place.ask("watch", f"job_{dead}", "--json").out.splitlines()] == [
        "queued", "assigned", "running", "dead_lettered",
    ]  # fmt: skip


def test_a_watch_is_bounded(place: Place) -> None:
    job = place.world.submit()
    done = place.ask("watch", f"job_{job}", "--for", "10ms")
    assert (done.code, done.out.splitlines()[-1]) == (1, f"job_{job} has not ended: interlock why job_{job}")
    done = place.ask("watch", "--for", "10ms")
    assert (done.code, done.out) == (0, "")


def test_a_watch_of_everything_tells_what_happens_meanwhile(place: Place) -> None:
    place.world.submit("before")
    with subprocess.Popen(
        [str(COMMAND), "watch", "--json", "--for", "60s", "--db", place.url], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        told: list[dict[str, Any]] = []
        while not told:  # it begins at some instant: whatever happens after that is told
            job = place.world.submit("during")
            os.set_blocking(process.stdout.fileno(), False)
            told = [json.loads(line) for line in process.stdout.readlines()]
            assert process.poll() is None
        process.terminate()
    assert {one["name"] for one in told} == {"job_queued"}
    assert job


def on_a_terminal(*args: str) -> str:
    """What a command prints to a terminal."""
    main, side = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160"}
    with subprocess.Popen([str(COMMAND), *args], stdout=side, stderr=side, stdin=side, env=env) as process:
        os.close(side)
        text = b""
        while True:
            try:
                some = os.read(main, 65_536)
            except OSError:  # the other side is closed
                break
            if not some:
                break
            text += some
    os.close(main)
    assert process.returncode in (0, 1)
    return text.decode()


def test_a_terminal_gets_tables_colours_and_progress_bars(tmp_path: Path) -> None:
    connection = SqliteConnection(f"{tmp_path}/work.db")
    url = f"sqlite:///{tmp_path}/work.db"
    inside(url)("db", "upgrade")
    world = World(connection)
    world.submit()
    (grant,) = world.claim(world.worker("w"))
    world.start(grant)
    world.send(Record(held=(held(grant),), kind="progress", payload='{"done":0.5,"text":"half"}'))
    connection.close()
    text = on_a_terminal("list", "--db", url)
    assert "\t" not in text
    assert "\x1b[1;34mrunning" in text
    text = on_a_terminal("watch", "job_1", "--for", "300ms", "--db", url)
    assert "━" in text
    assert "half" in text


# The environment and the help.


def commands(group: Any, context: click.Context) -> Iterator[tuple[Any, click.Context]]:
    for name, command in group.commands.items():
        if command.hidden:  # another name of one that is listed
            continue
        below = click.Context(command, info_name=name, parent=context)
        if hasattr(command, "commands"):
            yield from commands(command, below)
        else:
            yield command, below


def test_every_option_of_every_command_has_a_variable_of_its_own() -> None:
    group = typer.main.get_command(app)
    top = click.Context(group, info_name="interlock", **group.context_settings)  # type: ignore[arg-type]
    found = 0
    for command, context in commands(group, top):
        for option in command.params:
            if option.param_type_name == "option" and option.name != "help":
                name = option.envvar or f"{context.auto_envvar_prefix}_{option.name.upper()}"
                assert re.fullmatch(r"INTERLOCK_[A-Z_]+", name), (context.command_path, option.name)
                assert option.allow_from_autoenv
                found += 1
    assert found > 100


def test_the_environment_is_read(place: Place) -> None:
    for task in ("a", "b", "c"):
        place.world.submit(task)
    assert len(place.ask("list", INTERLOCK_LIST_LIMIT="2").rows) == 2
    assert [row[1] for row in place.ask("list", INTERLOCK_LIST_TASK="b").rows] == ["b"]
    assert place.ask("list", INTERLOCK_TENANT="2").rows == []
    assert place.ask("list", INTERLOCK_JSON="1").json["more"] is False
    assert "Invalid value for '--limit'" in place.ask("list", INTERLOCK_LIST_LIMIT="none").err


def test_a_submit_takes_few_ids_with_it(place: Place) -> None:
    first, second = (place.world.unit(parse_id(place.ask("submit", "mail").out.strip())).id for _ in range(2))
    assert second - first == IDS_PER_ROW


def test_every_verb_is_on_a_page_with_an_example() -> None:
    page = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md")))
    group = typer.main.get_command(app)
    for _, context in commands(group, click.Context(group, info_name="interlock")):
        assert re.search(rf"^(\$ )?{context.command_path}\b", page, re.M), context.command_path


def test_a_refusal_of_the_real_command_is_a_sentence(place: Place, started: Run) -> None:
    done = started("show", "job_zz", "--db", place.url)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "interlock: no job, run or step 'job_zz'\n")
