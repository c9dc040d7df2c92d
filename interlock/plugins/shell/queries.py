"""What the law about shell commands reads."""

from interlock.store.connection import Connection

COMMANDS = """SELECT body.unit, body.policy, lane.capabilities FROM body
    JOIN unit ON unit.id = body.unit JOIN lane ON lane.id = unit.lane WHERE body.policy LIKE '%shell%'"""
HOLDERS = """SELECT lease.unit, body.policy, worker.capabilities FROM live_lease AS lease
    JOIN body ON body.unit = lease.unit JOIN worker ON worker.unit = lease.worker
    WHERE body.policy LIKE '%shell%'"""


def read_commands(connection: Connection) -> list[tuple[int, str, str]]:
    """Returns jobs that may be commands: the job, its policy, and the capabilities that its lane asks for."""
    return [(unit, policy, capabilities) for unit, policy, capabilities in connection.rows(COMMANDS)]


def read_command_holders(connection: Connection) -> list[tuple[int, str, str]]:
    """Returns held jobs that may be commands: the job, its policy, and the capabilities of its worker."""
    return [(unit, policy, capabilities) for unit, policy, capabilities in connection.rows(HOLDERS)]
