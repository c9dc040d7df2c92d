"""What files of the state of workstreams add to the core: queries for their writer, and commands."""

from interlock.core.plugin import Plugin
from interlock.plugins.state_files.documents import list_workstreams, read_graph, read_overview
from interlock.plugins.state_files.transitions import read_transitions

PLUGIN = Plugin(
    name="state_files",
    docs="recovery.md",
    queries=(read_transitions, read_overview, read_graph, list_workstreams),
    cli="interlock.plugins.state_files.cli:app",
)
