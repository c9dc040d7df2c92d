"""Turn the parts of a workstream into the work that is submitted: tasks, checks, pages of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.arguments import encode_arguments
from interlock.client.async_pairs import SendAll, Steps
from interlock.client.durations import length_us
from interlock.client.repositories import make_own_repository
from interlock.client.shell import ShellCommand
from interlock.client.tasks import Rules, Task, list_explicit, make_work, name_rules
from interlock.client.workflows import Approval, WorkflowStep
from interlock.client.workstream_tasks import TOP, WorkstreamTask, task
from interlock.core.validation import check_work
from interlock.kernel.commands import Submit, Submitted, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.workflow_graph import APPROVAL

if TYPE_CHECKING:
    from interlock.client.app import App

WORKSTREAM, TASK = "workstream", "task"  # lifecycles
PAGE = 1_000  # tasks of one command
PAGE_BYTES = 600_000  # of all inputs and options of one command; a server takes 1 MiB
PLAIN_WORK = Work(task="")


def read_part(part: Any) -> WorkstreamTask:
    """Returns what somebody gave as a task of a workstream.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    match part:
        case WorkstreamTask():
            return part
        case WorkflowStep(work=ShellCommand() as command):
            if part.when is not None or part.undo is not None or part.reclaim_after is not None:
                raise InterlockError(f"task '{part.name}': when, undo and reclaim_after are for steps of a workflow")
            return part.in_workstream or WorkstreamTask(command, part.name)
        case Task() | str():
            return task(part)
        case Work() | Approval():
            raise InterlockError(f"'{name_check(part)}' is a check and no task; it belongs into checks=[…]")
    raise InterlockError(
        f"{part!r} is no task; a task is one of an app, the name of one, interlock.task(…) or interlock.shell(…)"
    )


def name_check(check: Work | Approval) -> str:
    """Returns the name of a check: that of its task, or that of its approval."""
    return check.task if isinstance(check, Work) else check.name


def check_part(app: "App", called: str, make: Callable[[], Work]) -> Work:
    """Returns the work of a part, if it could ever be run.

    Raises:
        InterlockError: the text says how the part is called.
    """
    try:
        work = make()
        check_work(app.lifecycles, work, app.registry.hooks)
    except InterlockError as wrong:
        raise InterlockError(f"{called}: {name_rules(str(wrong))}") from None
    return work


def make_task_work(part: WorkstreamTask) -> Work:
    """Makes the work of a task, without its arguments."""
    if isinstance(part.work, ShellCommand):
        labels = msgspec.json.encode(part.rules.get("labels", {})).decode()
        plain = part.work.make_work("null", {**part.rules, "labels": labels})
        options = msgspec.json.decode(plain.options or "{}", type=dict[str, Any])
    else:
        of_task = part.work.rules if isinstance(part.work, Task) else Rules()
        name = part.work.name if isinstance(part.work, Task) else part.work
        named = {*(part.work.named if isinstance(part.work, Task) else ()), *part.rules}
        plain = make_work(name, replace(of_task, **part.rules), "null", {})
        plain = msgspec.structs.replace(plain, explicit=list_explicit(plain, named))
        options = {}
    options["checks"] = encode_checks([make_check(check) for check in part.checks])
    given = {"allow_failure": part.allow_failure, "map": part.map, "takes_us": part.takes_us}
    own = {name: value for name, value in given.items() if value}
    options |= {**({"workstreams": own} if own else {}), **make_own_repository(part.repo)}
    return msgspec.structs.replace(
        plain, lifecycle=TASK, parent=TOP, step=part.name, needs=part.needs, decides=part.critical,
        options=encode_options(options),
    )  # fmt: skip


def encode_input(part: WorkstreamTask, arguments: Mapping[str, Any]) -> str:
    """Encodes the arguments of a task: those of the workstream, and its own.

    It has all of them, for its checks take them too; where it runs, it takes those that its parameters name.
    """
    given = {name: value for name, value in arguments.items() if name not in part.needs}
    return encode_arguments({**given, **part.arguments}).decode()


# Checks.


def make_check(check: Any) -> Work:
    """Makes the work of a check, of a task or of a whole workstream.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    match check:
        case Work():
            return check
        case str():
            return Work(task=check)
        case Task():
            return check.plain_work
        case Approval():
            if check.when is not None or check.on_reject is not None:
                raise InterlockError(f"check '{check.name}': when and on_reject are for approvals of a workflow")
            expires = None if check.expires is None else length_us("expires", check.expires)
            return Work(
                task=check.name, lifecycle=APPROVAL, approvers=check.approvers, quorum=check.quorum,
                expires_us=expires, not_submitter=check.not_submitter,
            )  # fmt: skip
    part = read_part(check)
    if part.needs or part.checks or part.allow_failure or not part.critical or part.repo is not None:
        raise InterlockError(
            f"check '{part.name}': a check has no needs, no checks and no repository of its own, and it always counts"
        )
    work = make_task_work(part)
    shell = {"shell": msgspec.json.decode(work.options or "{}")["shell"]} if isinstance(part.work, ShellCommand) else {}
    text = encode_arguments(part.arguments).decode() if part.arguments else "null"
    return msgspec.structs.replace(
        work, lifecycle="job", parent=None, step=None, options=encode_options(shell), input=text
    )


def encode_checks(checks: Sequence[Work]) -> dict[str, Any]:
    """Returns what work says of its checks; what a check does not say is left out, as there may be many such works."""
    return {"jobs": [encode_check(check) for check in checks]}


def encode_check(work: Work) -> Any:
    """Encodes a check as short as it can be: the name of its task if nothing else was given."""
    fields = {name: getattr(work, name) for name in Work.__struct_fields__}
    given = {name: value for name, value in fields.items() if value != getattr(PLAIN_WORK, name)}
    return work.task if given.keys() == {"task"} else given


def encode_options(options: Mapping[str, Any]) -> str | None:
    """Returns the options of work by plugin, or None if there are none."""
    return msgspec.json.encode(options).decode() if options else None


# Sending.


def send_pages(app: "App", unit: int, pages: Iterable[Sequence[Work]], actor: str) -> Steps[list[Submitted]]:
    """Adds tasks to a workstream, page by page. Returns the answers for all of them.

    Raises:
        InterlockError: something was refused; the pages before it stay.
    """
    made: list[Submitted] = []
    for page in pages:
        works = tuple(msgspec.structs.replace(work, parent=unit) for work in page)
        made += yield from send_one(Submit(tenant=app.tenant, work=works, actor=actor))
    return made


def send_one(command: Any) -> Steps[Any]:
    """Sends a command, and returns its answer. Raises what it was refused with."""
    (answer,) = yield SendAll([command])
    if isinstance(answer, BaseException):
        raise answer
    return answer


def split_pages(tasks: Sequence[Work]) -> list[list[Work]]:
    """Splits works into pages of at most 1,000, and of not more bytes than a server takes."""
    pages: list[list[Work]] = [[]]
    size = 0
    for work in tasks:
        own = len(work.input) + len(work.options or "") + 500
        if pages[-1] and (len(pages[-1]) == PAGE - 1 or size + own > PAGE_BYTES):
            pages.append([])
            size = 0
        pages[-1].append(work)
        size += own
    return pages
