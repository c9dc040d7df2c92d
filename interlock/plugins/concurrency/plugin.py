"""What concurrency adds to the core."""

from interlock.core.plugin import Plugin
from interlock.plugins.concurrency.rates import set_capacities, spend_token, take_tokens_back
from interlock.plugins.concurrency.slots import ConcurrencyOptions, check_keys, take_or_park
from interlock.store.hooks import Hooks

PLUGIN = Plugin(
    name="concurrency",
    docs="engine.md",
    options=ConcurrencyOptions,
    hooks=Hooks(
        gates=(take_or_park,),
        checks=(check_keys,),
        before_birth=(set_capacities,),
        before_grant=(spend_token,),
        claim_timers=(take_tokens_back,),
    ),
)
