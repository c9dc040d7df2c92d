"""What the law of effects reads."""

from interlock.store.connection import Connection

ALL = "SELECT unit, name, kind, payload FROM note WHERE kind IN ('effect', 'effect_result') ORDER BY unit, name"


def read_all_effects(connection: Connection) -> dict[tuple[int, str], list[tuple[str, str]]]:
    """By unit and name of an effect: the kinds of its notes, and what they say."""
    marks: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for unit, name, kind, payload in connection.rows(ALL):
        marks.setdefault((unit, name), []).append((kind, payload))
    return marks
