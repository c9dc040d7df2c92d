"""Repositories as programs write them: `interlock.merge(onto="main")` as a check of a workstream."""

import msgspec

from interlock.git.repository import check_branch_name
from interlock.kernel.commands import Work
from interlock.plugins.repositories.options import MERGE, MERGE_TERMS


def merge(*, onto: str) -> Work:
    """Returns the check of a workstream that merges its commits onto a branch, when its other checks have passed.

    Raises:
        InterlockError: no branch can have that name.
    """
    terms = MERGE_TERMS
    return Work(
        task=MERGE, input=msgspec.json.encode({"onto": check_branch_name(onto)}).decode(), attempts=terms["attempts"],
        losses=terms["losses"], backoff_us=terms["backoff_us"], backoff_cap_us=terms["backoff_cap_us"],
    )  # fmt: skip
