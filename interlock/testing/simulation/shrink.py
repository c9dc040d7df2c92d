"""Makes a failing seed small: the fewest steps that still break something, written as a test to paste."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from interlock.testing.simulation.record import Step
from interlock.testing.simulation.replay import lived

MISSING = object()


def signature(found: Sequence[str]) -> str:
    """What is wrong, whoever it happens to."""
    return re.sub(r"\d+", "n", found[0].split("(")[0])[:60] if found else ""


def shrunk(steps: Sequence[Step]) -> list[Step]:
    """The fewest of these steps that break the same; empty if they break nothing without the rest of the system."""
    first = lived(steps)
    wrong = signature(first.found)
    if not wrong:
        return []
    kept = list(steps[: len(first.told)])
    size = max(1, len(kept) // 2)
    while size:
        smaller = list(fewer(kept, size, wrong))
        kept, size = (smaller, size) if len(smaller) < len(kept) else (kept, size // 2)
    kept = list(simpler(kept, wrong))
    told = lived(kept).told
    return told if signature(lived(told).found) == wrong else kept


def fewer(steps: list[Step], size: int, wrong: str) -> Iterator[Step]:
    """The steps without all runs of that length that are not needed."""
    kept, place = list(steps), 0
    while place < len(kept):
        tried = kept[:place] + kept[place + size :]
        if signature(lived(tried).found) == wrong:
            kept = tried
        else:
            place += size
    yield from kept


def simpler(steps: list[Step], wrong: str) -> Iterator[Step]:
    """The same steps with as few commands and faults as will do."""
    kept = list(steps)
    for place in range(len(kept)):
        if kept[place].faults:
            kept = better(kept, place, msgspec.structs.replace(kept[place], faults=()), wrong)
        for number in reversed(range(len(kept[place].commands))):
            step = kept[place]
            commands = step.commands[:number] + step.commands[number + 1 :]
            answers = step.answers[:number] + step.answers[number + 1 :]
            if commands:
                kept = better(kept, place, msgspec.structs.replace(step, commands=commands, answers=answers), wrong)
    yield from kept


def better(steps: list[Step], place: int, step: Step, wrong: str) -> list[Step]:
    tried = [*steps[:place], step, *steps[place + 1 :]]
    return tried if signature(lived(tried).found) == wrong else steps


def written_out(steps: Sequence[Step], seed: int) -> str:
    """A test that lives these steps for ever."""
    names = sorted({name for step in steps for command in step.commands for name in kinds(command)} | {"Step"})
    told = "\n".join(f"    {spelled(step)}," for step in steps)
    known = ", ".join(name for name in names if name != "Step")
    return (
        f'"""What seed {seed} found: say here what was wrong."""\n\n'
        f"from interlock.kernel.commands import {known}\n"
        "from interlock.testing.simulation.record import Step\n"
        "from interlock.testing.simulation.replay import relive\n\n"
        f"STORY = [\n{told}\n]\n\n\n"
        f"def test_seed_{seed}() -> None:\n    assert relive(STORY) == []\n"
    )


def kinds(value: Any) -> Iterator[str]:
    """The names of all structures in a value."""
    if isinstance(value, msgspec.Struct):
        yield type(value).__name__
        for name in value.__struct_fields__:
            yield from kinds(getattr(value, name))
    elif isinstance(value, tuple):
        for one in value:
            yield from kinds(one)


def spelled(value: Any) -> str:
    """A value as it is written in Python, without what goes without saying."""
    if isinstance(value, tuple):
        inner = ", ".join(map(spelled, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if not isinstance(value, msgspec.Struct):
        return repr(value)
    said = []
    for field in msgspec.structs.fields(value):
        held = getattr(value, field.name)
        default = field.default if field.default is not msgspec.NODEFAULT else MISSING
        if held != default:
            said.append(f"{field.name}={spelled(held)}")
    return f"{type(value).__name__}({', '.join(said)})"
