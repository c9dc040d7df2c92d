"""Each lint fires on a file that breaks it, and names file, place and rule."""

import re
from pathlib import Path

import pytest

from interlock.kernel.errors import BadLifecycle, Unknown
from interlock.lifecycles import FOLDER
from interlock.lifecycles.loader import load, parse
from tests.conftest import Run
from tests.lifecycles.sample import PARCEL

CARRIED = 'carried   = { category = "active", deadline = "time_out", within = "8h" }'
BROKEN = [
    # (what is replaced, by what, where it is reported, the rule, a part of the text)
    ('ready  = "packed"', 'ready  = "posted"', "state 'waiting'", "unknown-state", "leads to 'posted'"),
    ("[moves.checked]", "[moves.chekced]", "state 'chekced'", "unknown-state", "does not have"),
    ('ready  = "packed"\n', "", "state 'packed'", "unreachable", "from birth"),
    (
        'valid   = { to = "delivered", owner = "validator" }\ninvalid = { to = "returned", owner = "validator" }',
        'valid   = { to = "waiting", owner = "validator", opens_attempt = true }\n'
        'cancel  = { to = "checked", opens_attempt = true }',
        "state 'delivered'",
        "unreachable",
        "no path of moves leads here",
    ),
    (
        '[moves.checked]\nvalid   = { to = "delivered", owner = "validator" }\n'
        'invalid = { to = "returned", owner = "validator" }\n',
        '[moves.returned]\ngo = { to = "delivered", opens_attempt = true }\n',
        "state 'checked'",
        "no-end",
        "to a settled state",
    ),
    ('lost     = { to = "packed", opens_attempt = true }\n', "", "state 'carried'", "lost-lease", "answers a lost lease"),
    ('exhaust  = "returned"\n', "", "state 'carried'", "lost-lease", "no attempt is left"),
    ('claim  = "carried"', 'grab  = "carried"', "state 'packed'", "ready-claim", "no 'claim'"),
    (
        'ready  = "packed"\ncancel = { to = "stopped", owner = "person" }',
        'ready  = "packed"',
        "state 'waiting'",
        "cancel",
        "says nothing about cancel",
    ),
    ('cancel = "refused", ', 'cancel = "never", ', "state 'checked'", "cancel", "says cancel = 'never'"),
    (', cancel_why = "It has arrived."', "", "state 'checked'", "cancel", "does not say why"),
    (
        'waiting   = { category = "waiting", ',
        'waiting   = { category = "waiting", cancel = "deferred", ',
        "state 'waiting'",
        "cancel",
        "keep one of them",
    ),
    (CARRIED, 'carried   = { category = "active" }', "state 'carried'", "deadline", "says nothing about a deadline"),
    (', deadline_why = "It waits for its sender."', "", "state 'waiting'", "deadline", "does not say why"),
    ('deadline = "time_out", within', 'deadline = "ring", within', "state 'carried'", "deadline", "fires 'ring'"),
    ('exhaust  = "returned"', 'exhaust  = "returned"\nexhaust = "stopped"', "state 'carried'", "one-answer", "listed twice"),
    ("[moves.checked]", "[moves.packed]", "state 'packed'", "one-answer", "listed twice"),
    (
        'ready  = "packed"',
        'ready  = "packed"\ncomplete = 7',
        "state 'waiting': 'complete': to",
        "format",
        "Expected 'str | array'",
    ),
    (
        'ready  = "packed"',
        'ready  = "packed"\ncomplete = ["carried", "delivered"]',
        "state 'carried'",
        "one-answer",
        "leads both to",
    ),
    ('retry    = { to = "packed", opens_attempt = true }', 'retry    = "packed"', "state 'packed'", "cycle", "opens no attempt"),
    ('[moves.checked]', '[moves.returned]\nresend = "packed"\n[moves.checked]', "state 'returned'", "settled-exit", "open an attempt"),
    ('exhaust  = "returned"', 'exhaust  = { to = "returned", extension = true }', "state 'carried'", "extension", "does not say why"),
    (
        'retry    = { to = "packed", opens_attempt = true }',
        'retry    = { to = "packed", opens_attempt = true, guard = "the courier is rested" }',
        "state 'carried'",
        "guard",
        "'the courier is rested', which is no guard of the engine; asked for 'retry' here are attempts_left, retryable",
    ),
    (
        'valid   = { to = "delivered", owner = "validator" }',
        'valid   = { to = "delivered", owner = "validator", guard = ["attempts_left"] }',
        "state 'checked'",
        "guard",
        "'attempts_left', which nothing asks there; no guard is asked for 'valid' here",
    ),
    (
        'retry    = { to = "packed", opens_attempt = true }',
        'retry    = { to = "packed", opens_attempt = true, guard = ["retryable", 7] }',
        "state 'carried': 'retry': guard[1]",
        "format",
        "Expected 'str'",
    ),
    ('beat = "10s"', 'beat = "40s"', "lease", "lease-terms", "shorter than two beats"),
    ('ttl = "60s"', 'ttl = "60s"\nttl_min = "90s"', "lease", "lease-terms", "outside ttl_min"),
    ('beat = "10s"', 'beat = "10s"\nbeat_max = "5s"', "lease", "lease-terms", "outside beat_min"),
    ('[lease]\nttl = "60s"\nbeat = "10s"\n', "", "lease", "lease-terms", "needs a [lease] table"),
    ("[budget]", '[options]\nroll_up = "follow"\n[budget]', "options", "follow", "go together"),
    ('claim  = "carried"', 'claim  = { to = "carried", owner = "person" }', "state 'packed'", "owner", "for the engine to fire"),
    ('complete = { to = "checked", owner = "holder" }', 'complete = { to = "checked", owner = "person" }', "state 'carried'", "owner", "for the holder"),
    ('retry    = {', "retyr    = {", "state 'carried'", "misspelt", "did you mean 'retry'?"),
    ('fail     = { to = "returned", owner = "holder", severity = "error" }\n', "", "state 'carried'", "failure", "neither 'fail' nor 'bury'"),
    ("[budget]", '[options]\ncancel_mode = "two_phase"\n[budget]', "options", "two-phase", "needs a state of category closing"),
    ('cancel   = { to = "stopped", owner = "person" }\n\n[moves.checked]', 'cancel   = { to = "delivered", owner = "person" }\n\n[moves.checked]', "state 'carried'", "cancel", "a cancel ends cancelled"),
    ('lost     = { to = "packed", opens_attempt = true }', 'lost     = { to = "checked" }', "state 'carried'", "next-attempt", "wait for the next worker"),
    ("[budget]", '[options]\ncancel_mode = "flagged"\n[budget]', "state 'carried'", "cancel", "no 'stopped' hears the answer"),
    ('beat = "10s"', 'beat = "10s"\nmissed_beats = -1', "lease", "lease-terms", "below 0"),
    ('beat = "10s"', 'beat = "10s"\nack = "61s"', "lease", "lease-terms", "longer than ttl"),
    ('beat = "10s"', 'beat = "10s"\nsilent_max = "59s"', "lease", "lease-terms", "shorter than ttl"),
    ('ttl = "60s"', 'ttl = "' + "9" * 400 + 's"', "lease", "format", "too long"),
    ('within = "8h"', 'within = "0s"', "state 'carried'", "format", "no time at all"),
    ('within = "8h"', "within = 8", "state 'carried': within", "format", "write it as text in quotes"),
    ('ttl = "60s"\n', "", "the file: lease", "format", "lacks the required field 'ttl'"),
    ("[budget]", "[options]\nmonotonic = false\n[budget]", "options", "cycle", "monotonic_why"),
    # The file's own shape.
    ('category = "gate"', 'category = "gates"', "state 'checked'", "format", "allowed are waiting, ready, held"),
    ('owner = "validator" }\ninvalid', 'owner = "checker" }\ninvalid', "state 'checked': 'valid'", "format", "allowed are engine"),
    ('severity = "error"', 'severity = "bad"', "state 'carried': 'fail'", "format", "allowed are info, warning"),
    ('ready  = "packed"', 'ready  = { too = "packed" }', "state 'waiting': 'ready'", "format", "unknown field 'too'; allowed are to, owner"),
    (CARRIED, CARRIED.replace("within", "withn"), "state 'carried'", "format", "unknown field 'withn'"),
    ('within = "8h"', 'within = "8 moons"', "state 'carried'", "format", "is not a duration"),
    ('ready  = "packed"', "ready  = { to = [] }", "state 'waiting': 'ready'", "format", "leads nowhere"),
    (
        'exhaust  = "returned"',
        'exhaust  = { to = "returned", event = ["a", "b"] }',
        "state 'carried': 'exhaust'",
        "format",
        "one for each",
    ),
    ('name = "parcel"', 'name = "my parcel"', "name", "format", "is not a name"),
    ("attempts = 2", "attempts = 0", "budget", "format", "at least 1"),
    ("attempts = 2", 'attempts = 2\nexhausted = "bury"', "budget", "format", "allowed are 'exhaust' and 'fail'"),
    ("[budget]", '[backoff]\nbase = "1s"\njitter = 2\n[budget]', "backoff", "format", "jitter"),
    ("[birth]", '[birth]\ncreate = "packed"', "birth", "format", "one is wanted"),
    ('name = "parcel"', 'nam = "parcel"', "the file", "format", "unknown field 'nam'"),
    ("[states]", "[states", "line 11", "format", "it is not TOML"),
]  # fmt: skip


def spoilt(old: str, new: str) -> str:
    assert old in PARCEL, f"the sample has no {old!r}"
    return PARCEL.replace(old, new, 1)


def test_the_sample_is_sound() -> None:
    assert parse(PARCEL, "parcel.toml").name == "parcel"


@pytest.mark.parametrize(("old", "new", "place", "rule", "text"), BROKEN)
def test_a_lint_fires(old: str, new: str, place: str, rule: str, text: str) -> None:
    with pytest.raises(BadLifecycle) as bad:
        parse(spoilt(old, new), "parcel.toml")
    wanted = [
        fault
        for fault in bad.value.faults
        if fault.startswith(f"parcel.toml: {place}: ") and fault.endswith(f"[{rule}]")
    ]
    assert any(text in fault for fault in wanted), bad.value.faults


def test_every_rule_is_shown_to_fire() -> None:
    """A rule that nothing here breaks could be dropped without anybody noticing."""
    kernel = (FOLDER.parent / "kernel" / "lint.py").read_text(encoding="utf-8")
    named = set(re.findall(r'Fault\([^"]*?(?:"\w+", )?"([a-z-]+)"', kernel))
    assert len(named) >= 11
    assert named <= {rule for *_, rule, _ in BROKEN}


def test_all_faults_are_told_at_once() -> None:
    text = spoilt('lost     = { to = "packed", opens_attempt = true }\n', "").replace(
        'claim  = "carried"', 'grab = "carried"'
    )
    with pytest.raises(BadLifecycle) as bad:
        parse(text, "parcel.toml")
    assert len(bad.value.faults) == 2


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_our_own_files_are_sound(path: Path) -> None:
    assert load(path).name == path.stem


def test_a_file_that_is_not_there_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(Unknown, match="cannot be read: No such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(Unknown, match="cannot be read: Is a directory"):
        load(tmp_path)
    with pytest.raises(Unknown, match="cannot be read: File name too long"):
        load(tmp_path / ("n" * 5000 + ".toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadLifecycle, match="not UTF-8"):
        load(tmp_path / "bytes.toml")


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000, "", "name = 1"])
def test_what_cannot_be_a_lifecycle_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(BadLifecycle, match=r"x.toml: "):
        parse(text, "x.toml")


def test_names_of_ones_own_are_not_taken_for_misspellings_where_no_worker_claims() -> None:
    text = """
name = "appliance"
[states]
bought = { category = "waiting", deadline = "none", deadline_why = "It waits for its owner." }
running = { category = "active", deadline = "none", deadline_why = "It waits for its owner." }
gone = { category = "closed" }
[birth]
submit = "bought"
[moves.bought]
install = { to = "running", owner = "person" }
cancel = "gone"
[moves.running]
release = { to = "gone", owner = "person" }
begin = { to = "gone", owner = "person" }
stop = { to = "gone", owner = "person" }
cancel = "gone"
"""
    with pytest.raises(BadLifecycle, match=r"'cancel' leads to 'gone', which is closed"):
        parse(text, "appliance.toml")
    assert parse(text.replace('"closed"', '"cancelled"'), "appliance.toml").leased is False


@pytest.mark.parametrize("name", ["job", "task", "ci_attempt", "agent_job", "step"])
def test_a_shipped_file_without_its_lost_lease_move_is_refused(name: str, tmp_path: Path, interlock: Run) -> None:
    """The fault that leaves work stuck when a worker crashes."""
    lines = (FOLDER / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith(("lost ", "reclaim "))]
    broken = tmp_path / "broken.toml"
    broken.write_text("\n".join(kept), encoding="utf-8")
    done = interlock("lifecycle", "lint", broken)
    assert done.returncode == 1
    assert "broken.toml: state " in done.stdout
    assert "[lost-lease]" in done.stdout
