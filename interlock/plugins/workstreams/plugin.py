"""What workstreams add to the core."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import AddTasks
from interlock.plugins.workstreams.adding import add_tasks, plan_complete, refuse_early_plan, refuse_late
from interlock.plugins.workstreams.options import NAME, WorkstreamOptions, check_workstream
from interlock.store.hooks import Hooks

PLUGIN = Plugin(
    name=NAME,
    docs="graphs.md",
    options=WorkstreamOptions,
    routes="interlock.plugins.workstreams.routes:ROUTES",
    cli="interlock.plugins.workstreams.cli:app",
    commands={AddTasks: add_tasks},
    hooks=Hooks(
        checks=(check_workstream,),
        prepare_work=(refuse_late,),
        after_submit=(plan_complete,),
        on_decide=(refuse_early_plan,),
    ),
)
