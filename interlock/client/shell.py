"""Shell commands: `app.shell("make")`, or `interlock.shell("build", "make")` as a step."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.durations import Length, instant_us, length_us
from interlock.client.tasks import check_options, inherit, parse_resources, refuse_unknown_options
from interlock.kernel.commands import Resource, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.plugins.shell.options import SHELL, ShellOptions, check_shell_options, encode_shell

if TYPE_CHECKING:
    from interlock.client.app import App

RULES = ("environment", "directory", "limits", "queue", "attempts", "timeout", "capabilities", "mutex", "resources")
SUBMITTED = ("key", "on_duplicate", "delay", "at", "priority", "labels", "correlation", "trace")


@dataclass(frozen=True, kw_only=True)
class ShellCommand:
    """A command with its rules; `make_work` makes a job or a step of it."""

    options: ShellOptions
    queue: str = "default"
    attempts: int | None = None
    timeout: Length | None = None
    capabilities: tuple[str, ...] = ()
    mutex: str | None = None
    resources: tuple[Resource, ...] = ()

    @property
    def name(self) -> str:
        """The task that runs it."""
        return SHELL

    @classmethod
    def check(cls, command: str, rules: Mapping[str, Any]) -> "ShellCommand":
        """Returns a command that workers can run.

        Raises:
            InterlockError: it is not allowed; the text says what is.
        """
        refuse_unknown_options("shell", rules, RULES)
        own = {name: rules[name] for name in ("environment", "directory", "limits") if rules.get(name) is not None}
        try:
            options = msgspec.convert({"command": command, **own}, ShellOptions)
        except msgspec.ValidationError as error:
            raise InterlockError(f"shell: {error}") from None
        check_shell_options(options)
        others = {name: rules[name] for name in ("queue", "attempts", "timeout", "mutex") if name in rules}
        others["resources"] = parse_resources(rules.get("resources") or ())
        capabilities = rules.get("capabilities") or ()
        check_options({**others, "capabilities": capabilities})
        return cls(options=options, capabilities=tuple(capabilities), **others)

    def make_work(self, text: str, options: Mapping[str, Any]) -> Work:
        """Returns the work of a job or a step; `text` is its input, and `options` are further fields of it."""
        timeout = None if self.timeout is None else length_us("timeout", self.timeout)
        capabilities = tuple(dict.fromkeys((SHELL, *self.capabilities)))
        fields = {"attempts": self.attempts, "timeout_us": timeout, "mutex": self.mutex, **options}
        fields["resources"] = self.resources
        return Work(
            task=SHELL, input=text, queue=self.queue, capabilities=capabilities, options=encode_shell(self.options),
            **fields,
        )  # fmt: skip


def make_shell_submit(app: "App", command: str, options: Mapping[str, Any], **fields: Any) -> Submit:
    """Returns the submit of a job that runs a command; `fields` are those of the submit itself.

    Raises:
        InterlockError: the command or an option is wrong; the text names it.
    """
    refuse_unknown_options("shell", options, (*RULES, *SUBMITTED))
    shell = ShellCommand.check(command, {name: options[name] for name in RULES if name in options})
    own = {name: options[name] for name in SUBMITTED if options.get(name) is not None}
    check_options(own)
    delay, at = own.pop("delay", None), own.pop("at", None)
    if delay is not None:
        own["delay_us"] = length_us("delay", delay)
    if at is not None:
        own["at_us"] = read_instant(at)
    own["labels"] = msgspec.json.encode(own.get("labels", {})).decode()
    text = msgspec.json.encode({"command": command}).decode()
    return Submit(tenant=app.tenant, work=(inherit(app, shell.make_work(text, own)),), **fields)


def read_instant(at: datetime) -> int:
    """Returns an instant in microseconds.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if not isinstance(at, datetime):
        raise InterlockError(f"at = {at!r} is not allowed; allowed is a datetime with a time zone")
    return instant_us("at", at)
