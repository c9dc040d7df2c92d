"""What pauses add to the core."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import Claim, PauseWork, UnpauseWork
from interlock.plugins.pauses.clocks import find_stood, watch_pauses
from interlock.plugins.pauses.outages import check_depends, report_outage, run_outages
from interlock.plugins.pauses.queries import (
    declare_pauses,
    find_granted_since,
    find_parked_on_none,
    find_run_out,
    find_stopped_for_ever,
)
from interlock.plugins.pauses.stories import pause_for_a_while, pause_what_has_a_clock, report_an_outage
from interlock.plugins.pauses.verbs import (
    end_due_pauses,
    leave_paused_queues,
    pass_over_paused,
    pause_work,
    unpause_work,
)
from interlock.store.hooks import Hooks

PLUGIN = Plugin(
    name="pauses",
    docs="waiting.md",
    commands={PauseWork: pause_work, UnpauseWork: unpause_work},
    prefetches={Claim: declare_pauses},
    hooks=Hooks(
        claim_queues=(leave_paused_queues,),
        claim_filters=(pass_over_paused,),
        checks=(check_depends,),
        on_release=(report_outage,),
        clocks=(find_stood,),
        claim_timers=(watch_pauses,),
        by_rows=(watch_pauses, leave_paused_queues, pass_over_paused),
        tick_timers=(run_outages, end_due_pauses),
    ),
    cli="interlock.plugins.pauses.cli:app",
    routes="interlock.plugins.pauses.routes:ROUTES",
    laws={
        "what is parked on a pause is released by it": find_parked_on_none,
        "nothing is granted while it is paused": find_granted_since,
        "no clock runs out while it is paused": find_run_out,
        "a clock stands only while it is paused": find_stopped_for_ever,
    },
    stories=(pause_for_a_while, pause_what_has_a_clock, report_an_outage),
)
