"""What tasks as rows add to the core."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import DefineTask, Submit
from interlock.plugins.tasks.definitions import complete_rules, define_task, submit_reads
from interlock.plugins.tasks.queries import (
    TABLES,
    count_open_tasks,
    count_open_work,
    find_ignorant_holders,
    find_misplaced_work,
    find_unsound_definitions,
    read_edges,
    read_task,
    read_tasks,
    read_waiting_inputs,
)
from interlock.plugins.tasks.stories import define_and_submit
from interlock.store.hooks import Hooks
from interlock.store.queries.views import read_templates

PLUGIN = Plugin(
    name="tasks",
    docs="tasks.md",
    tables=TABLES,
    commands={DefineTask: define_task},
    prefetches={Submit: submit_reads},
    queries=(read_tasks, read_task, count_open_tasks, read_waiting_inputs, count_open_work, read_edges, read_templates),
    routes="interlock.plugins.tasks.routes:ROUTES",
    cli="interlock.plugins.tasks.cli:app",
    laws={
        "what is stored of a task is what was defined, version after version": find_unsound_definitions,
        "work waits for workers who know its task": find_misplaced_work,
        "whoever holds work knows its task": find_ignorant_holders,
    },
    stories=(define_and_submit,),
    hooks=Hooks(complete_work=(complete_rules,)),
)
