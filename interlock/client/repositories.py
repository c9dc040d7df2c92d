"""Options for git repositories: `interlock.merge(onto="main")` as a check of a workstream."""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.core.effective_policy import policy_of
from interlock.git.repository import check_branch_name, check_revision
from interlock.kernel.commands import Work
from interlock.kernel.errors import InterlockError
from interlock.plugins.repositories.options import MERGE, MERGE_TERMS, NAME, check_repository_name, read_repository
from interlock.store.queries.views import view

if TYPE_CHECKING:
    from interlock.client.app import App
    from interlock.client.workstreams import Workstream

REF = "ref"


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


def make_repository(repo: str | None, ref: str | None = None) -> dict[str, Any]:
    """Returns what a workstream says of its repository; nothing if it has none.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if repo is None and ref is not None:
        raise InterlockError("ref is not allowed without repo: it is a revision of the repository")
    if repo is None:
        return {}
    if not isinstance(repo, str):
        raise InterlockError(f"repo = {repo!r} is not allowed; allowed is the name of a repository")
    own = {} if ref is None else {REF: check_revision(ref)}
    return {NAME: {"repo": check_repository_name(repo), **own}}


def make_own_repository(repo: str | None) -> dict[str, Any]:
    """Returns what a task says of a repository of its own; "" is none, although its workstream has one."""
    return {NAME: {"repo": ""}} if repo == "" else make_repository(repo)


def find_repository(app: "App", unit: int) -> str | None:
    """Returns the name of the repository of a workstream; None if it has none."""
    own = read_repository(policy_of(app.read(view, unit).body).options)
    return own.repo or None if own is not None else None


def take_ref(workstream: "Workstream", arguments: MutableMapping[str, Any]) -> str | None:
    """Returns the revision at which a workstream begins, which is an argument only if one of its tasks takes it.

    Raises:
        InterlockError: no revision can have that name.
    """
    if workstream.repo is None or arguments.get(REF) is None:
        return None
    takes_it = any(parameter.name == REF for parameter in workstream.arguments.parameters)
    return check_revision(arguments[REF] if takes_it else arguments.pop(REF))


def begin_at(work: Work, ref: str | None) -> Work:
    """Returns the work of a workstream that begins at a revision; None leaves it as it is."""
    if ref is None:
        return work
    options = msgspec.json.decode(work.options or "{}")
    options[NAME] = {**options.get(NAME, {}), REF: ref}
    return msgspec.structs.replace(work, options=msgspec.json.encode(options).decode())
