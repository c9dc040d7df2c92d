"""Transcripts, decisions and meters of agent runs, as response shapes."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.durations import format_time
from interlock.kernel.budgets import format_amount, present_amount
from interlock.kernel.commands import MeterStatus
from interlock.plugins.agents.transcripts import TranscriptEntry, read_transcript

if TYPE_CHECKING:
    from interlock.client.app import App

PAGE = 500  # entries that are read together


class MeterResponse(msgspec.Struct):
    """What a run and all below it have used of something, and may use: money in dollars, time in seconds."""

    name: str
    used: float
    soft: float | None
    hard: float | None


class TranscriptEntryResponse(msgspec.Struct, omit_defaults=True):
    """Something that became of a run, told by whoever did it."""

    at: str | None
    what: str
    name: str = ""
    unit: str = ""
    by: str = ""
    fence: int = 0
    reason: str = ""
    value: Any = None
    request: Any = None
    usage: dict[str, float] | None = None
    copied: bool = False


def describe_meter(meter: MeterStatus) -> MeterResponse:
    """A meter as people write amounts."""
    used, soft, hard = (
        None if each is None else present_amount(meter.name, each) for each in (meter.used, meter.soft, meter.hard)
    )
    return MeterResponse(meter.name, used or 0, soft, hard)


def describe_entry(entry: TranscriptEntry) -> TranscriptEntryResponse:
    """An entry of a transcript, with its time and its usage as people write them."""
    given = {**msgspec.structs.asdict(entry), "at": format_time(entry.at)}
    if entry.usage is not None:
        given["usage"] = {name: present_amount(name, used) for name, used in entry.usage.items()}
    return TranscriptEntryResponse(**given)


def read_all_entries(app: "App", unit: int) -> list[TranscriptEntry]:
    """Reads the transcript of an agent run, a page at a time."""
    entries: list[TranscriptEntry] = []
    while page := app.read(read_transcript, unit, len(entries), PAGE):
        entries += page
    return entries


def render_usage(usage: dict[str, int] | None) -> str:
    """What a step used, in one cell of a table."""
    return ", ".join(f"{name} {format_amount(name, used)}" for name, used in (usage or {}).items())


def render_transcript(entries: Iterable[TranscriptEntry]) -> str:
    """A transcript as a file: a line of JSON for each entry."""
    return "".join(f"{msgspec.json.encode(describe_entry(entry)).decode()}\n" for entry in entries)
