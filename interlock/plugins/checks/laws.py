"""What is true of gates and their checks."""

from collections.abc import Iterator

from interlock.plugins.checks.queries import read_ended_checks, read_gates
from interlock.store.connection import Connection

PAGE = 500


def find_wrong_gates(connection: Connection) -> Iterator[tuple[int, str]]:
    """Units that wait in a gate although all checks have ended, or have passed one although a check failed."""
    gates = read_gates(connection)
    for start in range(0, len(gates), PAGE):
        page = gates[start : start + PAGE]
        checks = read_ended_checks(connection, (gate.unit for gate in page))
        for gate in page:
            ended = checks.get((gate.unit, gate.entry), [])
            failed = any(not check.passed for check in ended)
            if gate.category == "gate" and gate.version == gate.entry and gate.note.is_over(len(ended), failed):
                yield gate.unit, "its checks have ended, and it has no verdict"
            if len(ended) > gate.note.checks + gate.note.last:
                yield gate.unit, f"it has {gate.note.checks + gate.note.last} checks, and {len(ended)} ended"
            if failed and gate.outcome == "success" and gate.version == gate.entry + 1:
                yield gate.unit, "a check of it has failed, and it has passed"
