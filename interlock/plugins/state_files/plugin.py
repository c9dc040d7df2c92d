"""What files of the state of workstreams add to the core: queries for their writer, and archives that come back."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import RestoreTree
from interlock.plugins.state_files.documents import count_moves, list_workstreams, read_graph, read_overview
from interlock.plugins.state_files.queries import (
    TABLES,
    find_restored_and_gone,
    forget_restored,
    read_lanes_to_archive,
)
from interlock.plugins.state_files.restoring import restore_tree
from interlock.plugins.state_files.transitions import read_transitions
from interlock.store.hooks import Hooks

PLUGIN = Plugin(
    name="state_files",
    docs="recovery.md",
    tables=TABLES,
    commands={RestoreTree: restore_tree},
    queries=(read_transitions, count_moves, read_overview, read_graph, list_workstreams),
    hooks=Hooks(archive_rows=(read_lanes_to_archive,), on_forget=(forget_restored,)),
    laws={"what came back from an archive is there": find_restored_and_gone},
    cli="interlock.plugins.state_files.cli:app",
    routes="interlock.plugins.state_files.routes:ROUTES",
)
