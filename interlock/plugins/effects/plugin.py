"""What effects add to the core."""

from pathlib import Path

from interlock.core.plugin import Plugin
from interlock.plugins.effects.records import (
    MARK,
    RESULT,
    answer_question,
    find_silent_calls,
    hand_over_effects,
    record_effect,
)
from interlock.plugins.effects.stories import call_the_outside
from interlock.store.hooks import GrantFields, Hooks, OnRecord

PLUGIN = Plugin(
    name="effects",
    docs="waiting.md",
    lifecycles=(Path(__file__).parent / "effect.toml",),
    laws={"no call to the outside is repeated in silence": find_silent_calls},
    stories=(call_the_outside,),
    hooks=Hooks(
        grant_fields=(GrantFields(lambda kind: kind.is_repeated, hand_over_effects),),
        on_record=(OnRecord(lambda kind: kind.kind in (MARK, RESULT), record_effect),),
        on_decide=(answer_question,),
    ),
)
