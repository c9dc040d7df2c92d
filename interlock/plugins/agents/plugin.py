"""What agent runs add to the core."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import Fork, ReadSteps
from interlock.plugins.agents.decisions import follow_decision, hand_over_fences
from interlock.plugins.agents.forks import fork
from interlock.plugins.agents.laws import LAWS
from interlock.plugins.agents.options import NAME, AgentOptions, check_agent, decide_nothing
from interlock.plugins.agents.phases import count_phase, record_phase
from interlock.plugins.agents.queries import read_agent_steps
from interlock.plugins.agents.steps import keep_request, read_steps
from interlock.store.hooks import GrantFields, Hooks

PLUGIN = Plugin(
    name=NAME,
    docs="agents.md",
    options=AgentOptions,
    commands={ReadSteps: read_steps, Fork: fork},
    queries=(read_agent_steps,),
    cli="interlock.plugins.agents.cli:app",
    laws=LAWS,
    hooks=Hooks(
        checks=(check_agent,),
        prepare_work=(decide_nothing,),
        grant_fields=(GrantFields(lambda kind: kind.is_repeated and kind.is_child and kind.decides, hand_over_fences),),
        on_record=(record_phase, keep_request),
        phase_guards=(count_phase,),
        after_decide=(follow_decision,),
    ),
)
