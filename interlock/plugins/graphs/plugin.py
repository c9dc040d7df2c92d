"""What graphs add to the core."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import ReadOutput
from interlock.plugins.graphs.outputs import hand_over_needed, read_output
from interlock.plugins.graphs.stories import send_a_graph_in_pages
from interlock.store.hooks import GrantFields, Hooks

PLUGIN = Plugin(
    name="graphs",
    docs="graphs.md",
    commands={ReadOutput: read_output},
    stories=(send_a_graph_in_pages,),
    hooks=Hooks(grant_fields=(GrantFields(lambda kind: kind.takes_outputs, hand_over_needed),)),
)
