"""`interlock submit`: a unit of work, without the program that defines its task."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from interlock.cli.options import DEFAULT, Actor, Tenant, Url, Why, app_on, length, named, unit_of
from interlock.cli.output import Json, dump, on_terminal, say
from interlock.client.durations import instant_us
from interlock.kernel.commands import Submit, Work
from interlock.kernel.errors import InterlockError

Arg = Annotated[
    list[str] | None,
    typer.Option("--arg", metavar="NAME=VALUE", help="An argument; a value that is JSON counts as it."),
]
Input = Annotated[str | None, typer.Option("--input", metavar="JSON", help="All arguments at once.")]
Queue = Annotated[str, typer.Option(envvar="INTERLOCK_QUEUE", help="The queue that it waits in.")]
Key = Annotated[str | None, typer.Option(help="One unit a task and key: the same again is the same unit.")]
OnDuplicate = Annotated[str, typer.Option(help="Of a key that is taken: return, reject or replace.")]
Delay = Annotated[str, typer.Option(metavar="DURATION", help="Not before this has passed, as in 90s or 2h.")]
At = Annotated[str | None, typer.Option(metavar="INSTANT", help="Not before 2030-01-31T08:00:00Z, say.")]
Priority = Annotated[int, typer.Option(help="The highest is claimed first.")]
Cap = Annotated[list[str] | None, typer.Option("--cap", help="A capability that its worker must have.")]
Mutex = Annotated[str | None, typer.Option(help="One unit of that name at a time.")]
Label = Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="A label.")]
Correlation = Annotated[str, typer.Option(help="What it belongs to; its children inherit it.")]
Life = Annotated[str, typer.Option("--lifecycle", help="What kind of unit it is.")]
Attempts = Annotated[int | None, typer.Option(help="How often it is tried.")]
Timeout = Annotated[str | None, typer.Option(metavar="DURATION", help="For how long it may run.")]
Parent = Annotated[str | None, typer.Option(metavar="ID", help="The unit that it is a part of.")]
After = Annotated[
    list[str] | None, typer.Option("--after", "--need", metavar="ID", help="A unit that must succeed before.")
]


def submit(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The name under which workers know the task.")],
    arg: Arg = None,
    given: Input = None,
    queue: Queue = "default",
    key: Key = None,
    on_duplicate: OnDuplicate = "return",
    delay: Delay = "0s",
    at: At = None,
    priority: Priority = 0,
    cap: Cap = None,
    mutex: Mutex = None,
    label: Label = None,
    correlation: Correlation = "",
    lifecycle: Life = "job",
    attempts: Attempts = None,
    timeout: Timeout = None,
    parent: Parent = None,
    after: After = None,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Submit a unit of work; piped, only its id is printed."""
    with app_on(db, tenant, make=True) as app:
        work = Work(
            task=task, lifecycle=lifecycle, input=arguments(arg, given), queue=queue, key=key,
            on_duplicate=on_duplicate, delay_us=length("delay", delay), at_us=None if at is None else instant(at),
            priority=priority, capabilities=tuple(cap or ()), mutex=mutex, labels=packed(pairs("label", label)),
            correlation=correlation, attempts=attempts,
            timeout_us=None if timeout is None else length("timeout", timeout),
            parent=None if parent is None else unit_of(app, parent),
            after=tuple(unit_of(app, one) for one in after or ()),
        )  # fmt: skip
        (made,) = app.send(Submit(tenant=tenant, actor=named(actor), reason=reason, work=(work,)))
        job = app.job(made.unit)
        name, state = job.id, job.state
    if json:
        dump({"id": name, "created": made.created, "replaced": made.replaced, "state": state})
    elif on_terminal():
        was = "submitted" if made.created else "there already, under its key"
        say(f"{name} was {was}; it is {state}. Look: interlock why {name}")
    else:
        say(name)


def arguments(named_ones: Sequence[str] | None, given: str | None) -> str:
    """The input of a unit as JSON text."""
    if given is None:
        return packed({name: value_of(text) for name, text in pairs("arg", named_ones).items()})
    if named_ones:
        raise InterlockError("give --arg or --input, not both")
    try:
        msgspec.json.decode(given)
    except msgspec.MsgspecError as error:
        raise InterlockError(f'--input is not JSON: {error}; quote it, as in --input \'{{"to": "a@b.c"}}\'') from None
    return given


def pairs(name: str, words: Sequence[str] | None) -> dict[str, str]:
    split = [word.partition("=") for word in words or ()]
    for word, (left, middle, _) in zip(words or (), split, strict=True):
        if not left or not middle:
            raise InterlockError(f"--{name} '{word}' is not allowed; allowed is NAME=VALUE")
    return {left: right for left, _, right in split}


def value_of(text: str) -> Any:
    """A value as JSON says it, or the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text


def packed(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def instant(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InterlockError(f"--at '{text}' is no instant; one looks like 2030-01-31T08:00:00Z") from None
    return instant_us("--at", at)
