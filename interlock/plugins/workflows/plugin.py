"""What workflows add to the core."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import DefineTemplate
from interlock.plugins.workflows.compensation import COMPENSATE, REMEMBER_UNDO, check_compensation
from interlock.plugins.workflows.outputs import gather_outputs, hand_over_outputs
from interlock.plugins.workflows.readiness import expand_or_skip
from interlock.plugins.workflows.steps import WorkflowOptions, check_step, prepare_step
from interlock.plugins.workflows.stories import keep_terms
from interlock.plugins.workflows.templates import define_template, rerun_template
from interlock.store.hooks import GrantFields, Hooks

PLUGIN = Plugin(
    name="workflows",
    docs="workflows.md",
    options=WorkflowOptions,
    commands={DefineTemplate: define_template},
    routes="interlock.plugins.workflows.routes:ROUTES",
    cli="interlock.plugins.workflows.cli:app",
    stories=(keep_terms,),
    hooks=Hooks(
        checks=(check_step,),
        prepare_work=(prepare_step,),
        before_ready=(expand_or_skip,),
        grant_fields=(GrantFields(lambda kind: kind.is_named and not kind.takes_outputs, hand_over_outputs),),
        on_rerun=(rerun_template,),
        before_record=(check_compensation,),
        before_roll_up=(gather_outputs,),
        reactions=(REMEMBER_UNDO, COMPENSATE),
    ),
)
