"""The logs of a run and of all below it."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from interlock.client.evidence import POLL_SECONDS, LogCursor
from interlock.client.trees import TreeNode, read_tree_snapshot
from interlock.plugins.evidence.queries import LogPart

if TYPE_CHECKING:
    from interlock.client.app import App


def read_tree_logs(app: "App", unit: int, *, follow: bool = False) -> Iterator[tuple[TreeNode, LogPart]]:
    """Yields parts of the logs of a run and of all below it, in the order of the tree, each with whose it is.

    With `follow` it goes on until the run has ended.
    """
    cursors: dict[int, LogCursor] = {}
    while True:
        nodes, fresh = app.read(read_tree_snapshot, app.lifecycles, unit).nodes, False
        for node in nodes:
            if node.lifecycle == "agent_run":  # its log is that of its jobs
                continue
            cursor = cursors.setdefault(node.unit, LogCursor(app, node.unit))
            while part := cursor.read():
                fresh = True
                yield node, part
        if not fresh and (not follow or nodes[0].outcome is not None):
            return
        if not fresh:
            time.sleep(POLL_SECONDS)
