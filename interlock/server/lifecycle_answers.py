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


class LifecycleTold(msgspec.Struct):
    """A lifecycle as data: its states, and every hop between them."""

    name: str
    document: str
    states: list[StateTold]
    moves: list[MoveTold]
