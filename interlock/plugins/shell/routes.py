"""Shell commands over HTTP: a job that runs one is submitted."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from interlock.client import responses
from interlock.client.shell import ShellCommand
from interlock.plugins.shell.options import COMMAND_MAX
from interlock.server.jobs import submit_work
from interlock.server.operations import Operation, Reply, Request
from interlock.server.request_schemas import (
    NO_NUL,
    Count,
    Labels,
    Name,
    Priority,
    Seconds,
    Short,
    Strict,
    Text,
    Words,
    encode_json,
    to_microseconds,
)


class ShellRequest(Strict, frozen=True, kw_only=True):
    """A command, the variables that it gets, and where and within which limits it runs."""

    command: Annotated[str, Meta(min_length=1, max_length=COMMAND_MAX, pattern=NO_NUL)]
    environment: dict[str, Annotated[str, Meta(pattern=NO_NUL)]] = msgspec.field(default_factory=dict)
    directory: Text = ""
    limits: dict[str, Annotated[float, Meta(ge=0, le=2**53)]] = msgspec.field(default_factory=dict)
    queue: Name = "default"
    key: Name | None = None
    priority: Priority = 0
    capabilities: Words = ()
    mutex: Name | None = None
    labels: Labels = msgspec.field(default_factory=dict)
    correlation: Short = ""
    attempts: Count | None = None
    timeout_seconds: Seconds | None = None


async def submit_shell(request: Request) -> Reply:
    """Submits a job that is a shell command."""
    body: ShellRequest = request.body
    limits: dict[str, Any] = {name: int(value) if value.is_integer() else value for name, value in body.limits.items()}
    rules = {"environment": body.environment, "directory": body.directory, "limits": limits, "queue": body.queue}
    work = ShellCommand.check(body.command, {**rules, "capabilities": list(body.capabilities)}).make_work(
        encode_json({"command": body.command}),
        {
            "key": body.key, "priority": body.priority, "mutex": body.mutex, "labels": encode_json(body.labels),
            "correlation": body.correlation, "attempts": body.attempts,
            "timeout_us": to_microseconds(body.timeout_seconds),
        },
    )  # fmt: skip
    (made,), status = await submit_work(request, [work])
    return Reply(made, status)


ROUTES = (
    Operation(
        method="POST", path="/v1/shell", scope="submit", summary="Submit a job that runs a shell command",
        call=submit_shell, body=ShellRequest, response=responses.SubmitResponse, status=201, other_statuses=(200,),
    ),
)  # fmt: skip
