"""An agent run as it is watched: its stream, what is spent and left, its phase, and who is asked what."""

import json

from interlock.kernel.commands import AppendLog, Emit, LeaseGrant, LogEntry, Record, Submit, Work
from interlock.kernel.ids import format_id
from tests.cli.places import Place
from tests.cli.test_tree import on_a_terminal
from tests.engine.world import held

OPTIONS = '{"agents": {"budget": {"tokens": {"hard": 1000, "soft": 300}}}}'


def start(place: Place) -> tuple[str, LeaseGrant]:
    """A run that has emitted some words, has used 400 tokens, and so asks for more."""
    world = place.world
    run = Work(task="goal", lifecycle="agent_run", ref="run", options=OPTIONS)
    unit = world.send(Submit(work=(run, Work(task="goal", lifecycle="agent_job", parent="run"))))[0].unit
    (grant,) = world.claim(world.worker())
    world.start(grant)
    emits = (Emit(0, 9),)
    world.send(AppendLog(entries=(LogEntry(held(grant), 0, b"two\nwords", emits),)))
    world.send(Record(held=(held(grant),), kind="step", name="plan", payload="1", usage={"tokens": 400}))
    return format_id("agent_run", unit), grant


def test_watch_tells_stream_budget_phase_and_question(place: Place) -> None:
    run, grant = start(place)
    lines = place.ask("watch", run, "--for", "1ms", "--json").out.splitlines()
    changes = {change["change"]: change for change in map(json.loads, lines)}
    assert (changes["log"]["text"], changes["log"]["attempt"], changes["log"]["start"]) == ("two\nwords", 1, 0)
    agent = changes["agent"]
    meters = {meter["name"]: (meter["used"], meter["hard"]) for meter in agent["meters"]}
    assert (agent["phase"], meters["tokens"], meters["steps"]) == ("running", (400, 1000), (1, None))
    (question,) = agent["questions"]
    assert question["name"] == "budget tokens 300"
    piped = place.ask("watch", run, "--for", "1ms").out
    assert f'{run}\tlog\t"two\\nwords"\n' in piped
    assert "running; spent " in piped
    assert f"tokens 400 (600 left); asks 'budget tokens 300' ({question['id']})" in piped
    drawn = on_a_terminal(place.url, "watch", run, "--for", "1ms")
    assert "tokens 400 (600 left)" in drawn
    assert "words" in drawn
    place.world.finish(grant, ended="failure", error_class="PermanentError")
    ended = [json.loads(line) for line in place.ask("watch", run, "--json").out.splitlines()]
    assert [change["void"] for change in ended if change["change"] == "void"] == [[[0, 9]]]


def test_a_plain_job_that_emits_is_watched_with_its_stream_and_another_is_not(place: Place) -> None:
    world = place.world
    worker = world.worker(concurrency=2)
    for data, emits in ((b"words", (Emit(0, 5),)), (b"a line\n", ())):
        job = format_id("job", world.submit())
        (grant,) = world.claim(worker)
        world.start(grant)
        world.send(AppendLog(entries=(LogEntry(held(grant), 0, data, emits),)))
        world.finish(grant)
        lines = place.ask("watch", job).out.splitlines()
        assert [line for line in lines if "\tlog\t" in line] == ([f'{job}\tlog\t"words"'] if emits else [])


def test_a_budget_shows_what_is_left_and_is_raised_by_a_resume(place: Place) -> None:
    run, grant = start(place)
    shown = place.ask("agent", "budget", run)
    assert "left: tokens 600" in shown.out
    waits = place.ask("agent", "budget", run, "--raise", "tokens=2000", "--reason", "more")
    assert (
        waits.code,
        "waits for an answer to 'budget tokens 300': raise it by `interlock approve approval_" in waits.err,
    ) == (2, True)
    for words in (("--reason", "why"), ("--raise", "tokens"), ("--raise", "tokens=x")):
        assert place.ask("agent", "budget", run, *words).code == 2
    place.world.finish(grant, ended="failure", error_class="PermanentError")
    low = place.ask("agent", "budget", run, "--raise", "tokens=100", "--reason", "less")
    assert low.code == 2
    nameless = place.ask("agent", "budget", run, "--raise", "tokens=2000")
    assert (nameless.code, "a reason is missing" in nameless.err) == (2, True)
    raised = place.ask("agent", "budget", run, "--raise", "tokens=2000", "--reason", "it is worth it", "--json")
    assert (raised.code, raised.json["left"]) == (0, {"tokens": 1600})
    assert place.ask("show", run, "--json").json["state"] == "queued"
