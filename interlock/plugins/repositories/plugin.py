"""What repositories add to the core."""

from interlock.core.plugin import Plugin
from interlock.plugins.repositories.laws import LAWS
from interlock.plugins.repositories.options import NAME, RepositoryOptions, check_repository
from interlock.plugins.repositories.stories import merge_a_workstream
from interlock.plugins.repositories.streams import (
    CLEAN_UP,
    KEEP_MERGES,
    PLAN_MERGES,
    complete_repositories,
    hand_over_repositories,
    leave_out_merges,
    prepare_repository,
)
from interlock.store.hooks import GrantFields, Hooks

PLUGIN = Plugin(
    name=NAME,
    docs="repositories.md",
    options=RepositoryOptions,
    laws=LAWS,
    stories=(merge_a_workstream,),
    hooks=Hooks(
        checks=(check_repository,),
        complete_options=(complete_repositories,),
        prepare_work=(prepare_repository,),
        before_rerun=(leave_out_merges,),
        grant_fields=(GrantFields(lambda kind: kind.has_options, hand_over_repositories),),
        reactions=(KEEP_MERGES, PLAN_MERGES, CLEAN_UP),
    ),
)
