"""What schedules add to the core."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import DefineSchedule, FireSchedule, PauseSchedule, RemoveSchedule, ResumeSchedule
from interlock.plugins.schedules.verbs import (
    define_schedule,
    fire_schedule,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedules,
)
from interlock.store.hooks import Hooks

PLUGIN = Plugin(
    name="schedules",
    docs="schedules.md",
    commands={
        DefineSchedule: define_schedule,
        PauseSchedule: pause_schedule,
        ResumeSchedule: resume_schedule,
        RemoveSchedule: remove_schedule,
        FireSchedule: fire_schedule,
    },
    pages="interlock.plugins.schedules.pages:PAGES",
    cli="interlock.plugins.schedules.cli:app",
    routes="interlock.plugins.schedules.routes:ROUTES",
    hooks=Hooks(tick_timers=(run_schedules,)),
)
