"""What the API answers about lifecycles: the law as data."""

import msgspec


class LifecycleLine(msgspec.Struct):
    name: str
    document: str
    about: str


class LifecycleList(msgspec.Struct):
    lifecycles: list[LifecycleLine]


class StateTold(msgspec.Struct):
    name: str
    category: str
    initial: bool
    settled: bool
    final: bool


class MoveTold(msgspec.Struct, rename={"source": "from", "target": "to"}):
    source: str | None
    target: str
    trigger: str
    owner: str
    event: str
    severity: str
    opens_attempt: bool
    extension: bool
    why: str
    guards: list[str]
    note: str


class LifecycleTold(msgspec.Struct):
    """A lifecycle as data: its states, and every hop between them."""

    name: str
    document: str
    states: list[StateTold]
    moves: list[MoveTold]


class NextTold(msgspec.Struct):
    """A move that the lifecycle lists here."""

    trigger: str
    target: str
    by: str
    guard: str
    note: str
    now: str
