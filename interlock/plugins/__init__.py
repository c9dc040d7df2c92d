"""The kinds of work that Interlock ships beside plain jobs, and engines that know them."""

from collections.abc import Mapping

from interlock.core.engine import Engine
from interlock.core.plugin import Registry
from interlock.kernel.lifecycle import Lifecycle
from interlock.plugins.agents.plugin import PLUGIN as AGENTS
from interlock.plugins.approvals.plugin import PLUGIN as APPROVALS
from interlock.plugins.checks.plugin import PLUGIN as CHECKS
from interlock.plugins.ci.plugin import PLUGIN as CI
from interlock.plugins.concurrency.plugin import PLUGIN as CONCURRENCY
from interlock.plugins.effects.plugin import PLUGIN as EFFECTS
from interlock.plugins.evidence.plugin import PLUGIN as EVIDENCE
from interlock.plugins.graphs.plugin import PLUGIN as GRAPHS
from interlock.plugins.parking.plugin import PLUGIN as PARKING
from interlock.plugins.pauses.plugin import PLUGIN as PAUSES
from interlock.plugins.repositories.plugin import PLUGIN as REPOSITORIES
from interlock.plugins.schedules.plugin import PLUGIN as SCHEDULES
from interlock.plugins.shell.plugin import PLUGIN as SHELL
from interlock.plugins.state_files.plugin import PLUGIN as STATE_FILES
from interlock.plugins.tasks.plugin import PLUGIN as TASKS
from interlock.plugins.workflows.plugin import PLUGIN as WORKFLOWS
from interlock.plugins.workstreams.plugin import PLUGIN as WORKSTREAMS
from interlock.store.connection import Connection, WakeupChannel

STANDARD = Registry(
    (
        CONCURRENCY, PARKING, EFFECTS, WORKSTREAMS, CHECKS, WORKFLOWS, GRAPHS, APPROVALS, SCHEDULES, EVIDENCE, SHELL,
        TASKS, PAUSES, REPOSITORIES, STATE_FILES, AGENTS, CI,
    )
)  # fmt: skip


def make_engine(
    connection: Connection, lifecycles: Mapping[str, Lifecycle], *others: Connection,
    channel: WakeupChannel | None = None, registry: Registry = STANDARD,
) -> Engine:  # fmt: skip
    """An engine with all plugins that Interlock ships, or with other ones, on connections that are open."""
    return Engine(connection, lifecycles, *others, channel=channel, registry=registry)


def open_engine(url: str, lifecycles: Mapping[str, Lifecycle]) -> Engine:
    """An engine with all plugins that Interlock ships, with connections and threads of its own; `close` ends them."""
    return Engine.open(url, lifecycles, registry=STANDARD)
