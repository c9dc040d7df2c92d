"""What approvals add to the core."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import Vote
from interlock.plugins.approvals.votes import ApprovalOptions, cast_verdict, check_approval, reject_parent, vote
from interlock.store.hooks import Hooks

PLUGIN = Plugin(
    name="approvals",
    docs="inbox.md",
    options=ApprovalOptions,
    commands={Vote: vote},
    routes="interlock.plugins.approvals.routes:ROUTES",
    cli="interlock.plugins.approvals.cli:app",
    hooks=Hooks(checks=(check_approval,), on_decide=(cast_verdict,), after_decide=(reject_parent,)),
)
