"""What CI adds to the core: runs that get a plan, classes of failures, results by fingerprint, and its commands."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import Plan
from interlock.plugins.ci.laws import LAWS
from interlock.plugins.ci.options import NAME, CiOptions, check_ci
from interlock.plugins.ci.plans import plan_run, refuse_rerun
from interlock.plugins.ci.queries import (
    TABLES,
    find_successes,
    forget_rows,
    list_ci_attempts,
    list_ci_jobs,
    list_ci_runs,
    list_ci_tests,
    list_flaky_tests,
    read_ci_plan,
    read_ci_run,
    read_plan_failure,
    read_rows_to_archive,
    read_why_stopped,
    restore_rows,
)
from interlock.plugins.ci.reporting import REPORT_TO_NOBODY
from interlock.plugins.ci.results import KEEP_SUCCESSES, judge_cancel, judge_end
from interlock.plugins.ci.stories import plan_and_run
from interlock.store.hooks import Hooks

PLUGIN = Plugin(
    name=NAME,
    docs="ci/README.md",
    options=CiOptions,
    tables=TABLES,
    commands={Plan: plan_run},
    queries=(
        list_ci_runs, read_ci_run, list_ci_jobs, list_ci_attempts, read_ci_plan, read_plan_failure, read_why_stopped,
        find_successes, list_ci_tests, list_flaky_tests,
    ),
    laws=LAWS,
    stories=(plan_and_run,),
    cli="interlock.plugins.ci.cli:app",
    hooks=Hooks(
        checks=(check_ci,),
        before_failure=(judge_end,),
        before_cancel=(judge_cancel,),
        on_rerun=(refuse_rerun,),
        reactions=(KEEP_SUCCESSES, REPORT_TO_NOBODY),
        archive_rows=(read_rows_to_archive,),
        restore_rows=(restore_rows,),
        on_forget=(forget_rows,),
    ),
)  # fmt: skip
