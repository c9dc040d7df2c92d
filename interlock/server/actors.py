"""Who a request acts as: its key, or another actor if the key may vouch.

A key has a name and roles. Whatever a body or a command says of an actor, a voter or roles is the key's own, or it is
vouched for: then the event names the person as its actor and the key as `vouched_by`. Rules that count people (four
eyes, quorums, approvers) count the person; the record says which key they rest on.
"""

from typing import Any

import msgspec

from interlock.kernel.api_keys import VOUCH
from interlock.kernel.commands import LOCAL, Command, Vote
from interlock.server.auth import Caller
from interlock.server.errors import ApiError


class ActingPerson(msgspec.Struct, frozen=True):
    """Who acts, in which roles, and the key that vouches for it; no key vouches for its own holder."""

    name: str
    roles: tuple[str, ...]
    vouched_by: str = ""


def resolve_actor(caller: Caller, name: str | None, roles: tuple[str, ...] = ()) -> ActingPerson:
    """Who a request of this caller acts for.

    Raises:
        ApiError: somebody else, if the key may not vouch.
    """
    own = name in (None, "", LOCAL, caller.name)
    strange = [role for role in roles if role not in caller.roles]
    if own and not strange:
        return ActingPerson(caller.name, caller.roles)
    if VOUCH not in caller.scopes:
        what = f"in the role '{strange[0]}'" if own else f"for '{name}'"
        text = f"this key speaks as '{caller.name}'; to speak {what} it needs the scope '{VOUCH}'"
        raise ApiError(403, text, needs=VOUCH, has=list(caller.scopes))
    return ActingPerson(caller.name if own else str(name), roles, f"{caller.name} ({caller.key})")


def make_actor_fields(caller: Caller, command: Command[Any]) -> dict[str, Any]:
    """The fields of a command that say who acts, as they are true.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    if isinstance(command, Vote):
        if command.actor not in (LOCAL, command.voter):
            raise ApiError(
                400, f"actor '{command.actor}' is not the voter '{command.voter}'; a vote is its voter's own"
            )
        who = resolve_actor(caller, command.voter, command.roles)
        return {"actor": who.name, "voter": who.name, "roles": who.roles, "vouched_by": who.vouched_by}
    of_worker = command.scope == "worker" and not command.other_scope  # nobody else speaks for a worker
    if of_worker and command.actor not in (LOCAL, caller.name):
        raise ApiError(403, f"a worker acts as its key, which is '{caller.name}'; leave actor out")
    who = resolve_actor(caller, command.actor)
    return {"actor": who.name, "vouched_by": who.vouched_by}
