"""What checks add to the core."""

from interlock.core.plugin import Plugin
from interlock.plugins.checks.gates import END_CHECKS, ENTER_GATES, Checks, check_checks, hand_over_results
from interlock.plugins.checks.laws import find_wrong_gates
from interlock.plugins.checks.stories import check_a_task
from interlock.store.hooks import GrantFields, Hooks

PLUGIN = Plugin(
    name="checks",
    docs="checks.md",
    options=Checks,
    laws={"checks are the verdict of their gate": find_wrong_gates},
    stories=(check_a_task,),
    hooks=Hooks(
        checks=(check_checks,),
        grant_fields=(GrantFields(lambda kind: kind.is_child and not kind.decides, hand_over_results),),
        reactions=(ENTER_GATES, END_CHECKS),
    ),
)
