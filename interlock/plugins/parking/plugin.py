"""What parking adds to the core."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import Signal
from interlock.plugins.parking.children import KIND, TELL_PARENTS, Spawned, hand_over_children, make_child
from interlock.plugins.parking.laws import find_sleepers
from interlock.plugins.parking.signals import (
    hand_over_signals,
    has_no_parent,
    signal,
    start_clock_above,
    wait_for_signals,
)
from interlock.plugins.parking.stories import wait_for_a_signal, wait_for_children
from interlock.store.hooks import GrantFields, Hooks, OnRecord

PLUGIN = Plugin(
    name="parking",
    docs="waiting.md",
    options=Spawned,
    commands={Signal: signal},
    laws={"nobody waits for what has come": find_sleepers},
    stories=(wait_for_children, wait_for_a_signal),
    hooks=Hooks(
        is_plain=(has_no_parent,),
        before_grant=(start_clock_above,),
        grant_fields=(
            GrantFields(lambda kind: kind.is_repeated, hand_over_signals),
            GrantFields(lambda kind: kind.is_repeated, hand_over_children),
        ),
        on_release=(wait_for_signals,),
        on_record=(OnRecord(lambda kind: kind.kind == KIND, make_child),),
        reactions=(TELL_PARENTS,),
    ),
)
