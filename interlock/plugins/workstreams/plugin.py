"""What workstreams add to the core."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import AddTasks, ReassignTask, RetryTask, SkipTask
from interlock.plugins.workstreams.adding import add_tasks, plan_complete, refuse_early_plan, refuse_late
from interlock.plugins.workstreams.laws import LAWS
from interlock.plugins.workstreams.maps import run_map
from interlock.plugins.workstreams.operations import leave_reassigned, reassign_task, retry_task, skip_task
from interlock.plugins.workstreams.options import NAME, WorkstreamOptions, check_map, check_workstream
from interlock.plugins.workstreams.reruns import rerun_workstream
from interlock.plugins.workstreams.stories import STORIES
from interlock.plugins.workstreams.tasks import PASS_ALLOWED, allow_failure, limit_tasks
from interlock.store.hooks import Hooks

PLUGIN = Plugin(
    name=NAME,
    docs="workstreams.md",
    options=WorkstreamOptions,
    routes="interlock.plugins.workstreams.routes:ROUTES",
    cli="interlock.plugins.workstreams.cli:app",
    laws=LAWS,
    stories=STORIES,
    commands={AddTasks: add_tasks, RetryTask: retry_task, SkipTask: skip_task, ReassignTask: reassign_task},
    hooks=Hooks(
        checks=(check_workstream,),
        checks_each=(check_map,),
        prepare_work=(refuse_late, limit_tasks),
        after_submit=(plan_complete,),
        before_ready=(run_map,),
        left_to_others=(leave_reassigned,),
        before_failure=(allow_failure,),
        on_decide=(refuse_early_plan,),
        on_rerun=(rerun_workstream,),
        reactions=(PASS_ALLOWED,),
    ),
)
