"""Shrink a failing seed to the fewest steps that still fail, and print them as a test to paste."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from interlock.testing.simulation.record import RecordedStep
from interlock.testing.simulation.replay import replay_steps

MISSING = object()


def signature(problems: Sequence[str]) -> str:
    """What is wrong, whoever it happens to."""
    return re.sub(r"\d+", "n", problems[0].split("(")[0])[:60] if problems else ""


def shrink_steps(steps: Sequence[RecordedStep]) -> list[RecordedStep]:
    """The fewest of these steps that break the same; empty if they break nothing without the rest of the system."""
    first = replay_steps(steps)
    wrong = signature(first.problems)
    if not wrong:
        return []
    kept = list(steps[: len(first.replayed)])
    size = max(1, len(kept) // 2)
    while size:
        smaller = list(drop_runs(kept, size, wrong))
        kept, size = (smaller, size) if len(smaller) < len(kept) else (kept, size // 2)
    kept = list(simplify_steps(kept, wrong))
    replayed = replay_steps(kept).replayed
    return replayed if signature(replay_steps(replayed).problems) == wrong else kept


def drop_runs(steps: list[RecordedStep], size: int, wrong: str) -> Iterator[RecordedStep]:
    """The steps without all runs of that length that are not needed."""
    kept, place = list(steps), 0
    while place < len(kept):
        tried = kept[:place] + kept[place + size :]
        if signature(replay_steps(tried).problems) == wrong:
            kept = tried
        else:
            place += size
    yield from kept


def simplify_steps(steps: list[RecordedStep], wrong: str) -> Iterator[RecordedStep]:
    """The same steps with as few commands and faults as will do."""
    kept = list(steps)
    for place in range(len(kept)):
        if kept[place].faults:
            kept = replace_step(kept, place, msgspec.structs.replace(kept[place], faults=()), wrong)
        for number in reversed(range(len(kept[place].commands))):
            step = kept[place]
            commands = step.commands[:number] + step.commands[number + 1 :]
            answers = step.answers[:number] + step.answers[number + 1 :]
            if commands:
                kept = replace_step(
                    kept, place, msgspec.structs.replace(step, commands=commands, answers=answers), wrong
                )
    yield from kept


def replace_step(steps: list[RecordedStep], place: int, step: RecordedStep, wrong: str) -> list[RecordedStep]:
    """Replaces a step, if the history fails in the same way with the other one."""
    tried = [*steps[:place], step, *steps[place + 1 :]]
    return tried if signature(replay_steps(tried).problems) == wrong else steps


def write_test(steps: Sequence[RecordedStep], seed: int) -> str:
    """A test that lives these steps for ever."""
    names = sorted({name for step in steps for command in step.commands for name in kinds(command)} | {"RecordedStep"})
    replayed = "\n".join(f"    {spell_value(step)}," for step in steps)
    known = ", ".join(name for name in names if name != "RecordedStep")
    return (
        f'"""What seed {seed} found: say here what was wrong."""\n\n'
        f"from interlock.kernel.commands import {known}\n"
        "from interlock.testing.simulation.record import RecordedStep\n"
        "from interlock.testing.simulation.replay import replay\n\n"
        f"STEPS = [\n{replayed}\n]\n\n\n"
        f"def test_seed_{seed}() -> None:\n    assert replay(STEPS) == []\n"
    )


def kinds(value: Any) -> Iterator[str]:
    """The names of all structures in a value."""
    if isinstance(value, msgspec.Struct):
        yield type(value).__name__
        for name in value.__struct_fields__:
            yield from kinds(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from kinds(item)


def spell_value(value: Any) -> str:
    """A value as it is written in Python, without what goes without saying."""
    if isinstance(value, tuple):
        inner = ", ".join(map(spell_value, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if not isinstance(value, msgspec.Struct):
        return repr(value)
    fields = []
    for field in msgspec.structs.fields(value):
        held = getattr(value, field.name)
        default = field.default if field.default is not msgspec.NODEFAULT else MISSING
        if held != default:
            fields.append(f"{field.name}={spell_value(held)}")
    return f"{type(value).__name__}({', '.join(fields)})"
