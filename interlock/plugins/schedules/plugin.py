"""What schedules add to the core."""

from interlock.engine.plugin import Plugin
from interlock.kernel.commands import Define, Pause, Remove, Resume, Trigger
from interlock.plugins.schedules.verbs import define, pause, remove, resume, run_schedules, trigger
from interlock.store.hooks import Hooks

PLUGIN = Plugin(
    name="schedules",
    commands={Define: define, Pause: pause, Resume: resume, Remove: remove, Trigger: trigger},
    hooks=Hooks(tick_timers=(run_schedules,)),
)
