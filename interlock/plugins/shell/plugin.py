"""What shell commands add to the core: an option of work, which a key needs a scope for and a worker a capability.

A job runs a command because its options say so, and for no other reason: its task and its input may be anybody's. The
option is refused without the capability, so no worker claims such a job that was not started for it. The server
refuses the option to keys that lack the scope (`Plugin.option_scope`), in whichever command it comes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from interlock.core.effective_policy import policy_in, policy_of
from interlock.core.plugin import Plugin
from interlock.kernel.api_keys import SHELL as SCOPE
from interlock.kernel.commands import Submit, Submitted, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Unit
from interlock.plugins.shell.options import SHELL, ShellOptions, check_shell_options, read_shell
from interlock.plugins.shell.queries import read_command_holders, read_commands
from interlock.plugins.shell.stories import claim_commands
from interlock.store.connection import Connection
from interlock.store.hooks import GrantFields, Hooks
from interlock.store.unit_of_work import UnitOfWork


def check_shell(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """Work that says a command is for workers that run commands.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if (options := read_shell(work.options)) is None:
        return
    lifecycle = lifecycles[work.lifecycle]
    if not lifecycle.leased and not lifecycle.options.follows:
        raise InterlockError(f"a {work.lifecycle} runs no command; a job or a step does")
    if work.task != SHELL or SHELL not in work.capabilities:
        raise InterlockError(f"a command is run by the task '{SHELL}', on workers with the capability '{SHELL}'")
    check_shell_options(options)


def refuse_other_command(tx: UnitOfWork, command: Submit, made: Sequence[Submitted]) -> None:
    """A name, or a key, that is taken stands for the command that has it.

    Raises:
        InterlockError: it has another one.
    """
    for work, answer in zip(command.work, made, strict=True):
        if answer.created or work.task != SHELL or (options := read_shell(work.options)) is None:
            continue
        unit = tx.unit(answer.unit)
        known = read_shell(policy_of(tx.body(unit)).options)
        if known and known.command == options.command:
            continue
        name = format_id(unit.lifecycle, unit.id)
        if work.key is not None:
            raise InterlockError(f"IDEMPOTENCY_CONFLICT: key '{work.key}' is that of {name}, with another command")
        raise InterlockError(f"NAME_TAKEN: '{work.step or work.ref}' is {name} already, with another command")


def hand_over_command(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, Any]]:
    """What a worker is told of the commands among these units."""
    texts = {unit.id: policy_of(tx.body(unit)).options for unit in units}
    return {unit: {"options": text} for unit, text in texts.items() if text is not None}


def find_unguarded_commands(connection: Connection) -> Iterator[tuple[int, str]]:
    """Finds commands that a worker could claim, or has claimed, which was not started to run any."""
    for unit, policy, capabilities in read_commands(connection):
        if is_command(policy) and SHELL not in capabilities.split(","):
            yield unit, f"it is a command, and asks for the capabilities '{capabilities}' alone"
    for unit, policy, capabilities in read_command_holders(connection):
        if is_command(policy) and SHELL not in capabilities.split(","):
            yield unit, "it is a command, and is held by a worker that runs none"


def is_command(policy: str) -> bool:
    """Whether a unit with this policy is a command; of a policy that cannot be read, another law speaks."""
    try:
        return read_shell(policy_in(policy).options) is not None
    except (msgspec.MsgspecError, AttributeError):
        return False


PLUGIN = Plugin(
    name=SHELL,
    docs="shell.md",
    options=ShellOptions,
    option_scope=SCOPE,
    routes="interlock.plugins.shell.routes:ROUTES",
    cli="interlock.plugins.shell.cli:app",
    stories=(claim_commands,),
    laws={"commands are held by workers that run commands": find_unguarded_commands},
    hooks=Hooks(
        checks=(check_shell,),
        after_submit=(refuse_other_command,),
        grant_fields=(GrantFields(lambda kind: kind.has_options, hand_over_command),),
    ),
)
