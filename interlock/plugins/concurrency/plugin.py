"""What concurrency adds to the core."""

from interlock.core.plugin import Plugin
from interlock.plugins.concurrency.queries import NEXT_TOKEN
from interlock.plugins.concurrency.rates import set_capacities, spend_token, take_tokens_back
from interlock.plugins.concurrency.resources import check_resources, find_wrong_amounts
from interlock.plugins.concurrency.slots import ConcurrencyOptions, check_keys, names_no_key, take_or_park
from interlock.plugins.concurrency.stories import share_resources
from interlock.store.hooks import Hooks

PLUGIN = Plugin(
    name="concurrency",
    docs="engine.md",
    options=ConcurrencyOptions,
    hooks=Hooks(
        gates=(take_or_park,),
        checks=(check_keys, check_resources),
        before_birth=(set_capacities,),
        is_plain=(names_no_key,),
        before_grant=(spend_token,),
        claim_timers=(take_tokens_back,),
        by_rows=(take_tokens_back,),
        clocks_of_rows=(NEXT_TOKEN,),
    ),
    laws={"a resource is taken by those who have it, and by nobody else": find_wrong_amounts},
    stories=(share_resources,),
)
