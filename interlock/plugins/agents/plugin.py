"""What agent runs add to the core."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import DefineContract, Fork, ReadSteps
from interlock.plugins.agents.binding import (
    define_contract,
    fail_broken,
    fail_unsupported,
    hand_over_contracts,
    prepare_agent_work,
)
from interlock.plugins.agents.budgets import (
    COUNT_STEP,
    HEAR_ANSWERS,
    STEP,
    STOP_TIME,
    end_active_runs,
    hand_over_meters,
    has_no_run,
    keep_late_step,
    start_time,
)
from interlock.plugins.agents.cassettes import read_cassette
from interlock.plugins.agents.decisions import follow_decision, hand_over_fences, resume_on_terms
from interlock.plugins.agents.forks import fork
from interlock.plugins.agents.governance import read_decision
from interlock.plugins.agents.laws import LAWS
from interlock.plugins.agents.options import NAME, AgentOptions, check_agent
from interlock.plugins.agents.phases import PHASE, count_phase, record_phase
from interlock.plugins.agents.queries import (
    TABLES,
    forget_rows,
    read_agent_steps,
    read_contract_of_run,
    read_meters_of_run,
    read_rows_to_archive,
    restore_rows,
)
from interlock.plugins.agents.reruns import rerun_agent
from interlock.plugins.agents.steps import keep_request, read_steps
from interlock.plugins.agents.stories import play_story
from interlock.plugins.agents.subagents import KIND, spawn_run, tell_result
from interlock.plugins.agents.transcripts import read_transcript
from interlock.plugins.agents.validations import (
    REQUEST,
    decide_validation,
    enter_validation,
    guard_return,
    hand_over_answers,
    hear_verdict,
)
from interlock.store.hooks import GrantFields, Hooks, OnRecord

PLUGIN = Plugin(
    name=NAME,
    docs="agents.md",
    options=AgentOptions,
    tables=TABLES,
    commands={ReadSteps: read_steps, Fork: fork, DefineContract: define_contract},
    queries=(
        read_agent_steps,
        read_meters_of_run,
        read_transcript,
        read_decision,
        read_cassette,
        read_contract_of_run,
    ),
    routes="interlock.plugins.agents.routes:ROUTES",
    cli="interlock.plugins.agents.cli:COMMANDS",
    laws=LAWS,
    stories=(play_story,),
    hooks=Hooks(
        checks=(check_agent,),
        prepare_work=(prepare_agent_work,),
        after_submit=(fail_unsupported,),
        left_to_others=(fail_broken,),
        grant_fields=(
            GrantFields(lambda kind: kind.is_repeated and kind.is_child and kind.decides, hand_over_fences),
            GrantFields(lambda kind: kind.is_child and kind.decides, hand_over_meters),
            GrantFields(lambda kind: kind.is_child and kind.decides, hand_over_contracts),
            GrantFields(lambda kind: kind.is_repeated and kind.is_child and kind.decides, hand_over_answers),
        ),
        is_plain=(has_no_run,),
        before_grant=(start_time,),
        on_decide=(resume_on_terms, decide_validation),
        on_verdict=(hear_verdict,),
        end_guards=(guard_return,),
        on_rerun=(rerun_agent,),
        before_roll_up=(tell_result,),
        on_record=(
            OnRecord(lambda kind: kind.kind == PHASE, record_phase),
            OnRecord(lambda kind: kind.kind == REQUEST, enter_validation),
            OnRecord(lambda kind: kind.kind == KIND, spawn_run),
            OnRecord(lambda kind: kind.kind == STEP and kind.asks, keep_request),
            COUNT_STEP,
        ),
        on_stale=(keep_late_step,),
        archive_rows=(read_rows_to_archive,),
        restore_rows=(restore_rows,),
        on_forget=(forget_rows,),
        reactions=(STOP_TIME, HEAR_ANSWERS),
        tick_timers=(end_active_runs,),
        phase_guards=(count_phase,),
        after_decide=(follow_decision,),
    ),
)
