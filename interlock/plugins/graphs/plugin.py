"""What graphs add to the core."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import ReadOutput
from interlock.plugins.graphs.outputs import hand_over_needed, read_output
from interlock.plugins.graphs.stories import send_a_graph_in_pages
from interlock.store.hooks import Hooks

PLUGIN = Plugin(
    name="graphs",
    docs="graphs.md",
    commands={ReadOutput: read_output},
    stories=(send_a_graph_in_pages,),
    hooks=Hooks(grant_fields=(hand_over_needed,)),
)
