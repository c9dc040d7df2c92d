"""`interlock submit`: a job, without the program that defines its task."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from interlock.cli.options import DEFAULT, Actor, Tenant, Url, Why, find_unit, get_actor, open_app, parse_length
from interlock.cli.output import Json, on_terminal, print_json, print_line
from interlock.client.durations import instant_us
from interlock.kernel.commands import Submit, Work
from interlock.kernel.errors import InterlockError

Arg = Annotated[
    list[str] | None,
    typer.Option("--arg", metavar="NAME=VALUE", help="Argument; parsed as JSON if possible, else text."),
]
Input = Annotated[str | None, typer.Option("--input", metavar="JSON", help="All arguments as JSON.")]
Queue = Annotated[
    str | None, typer.Option(envvar="INTERLOCK_QUEUE", help="Its queue (default: that of its task, or else default).")
]
Key = Annotated[str | None, typer.Option(help="Idempotency key: the same task and key returns the existing job.")]
OnDuplicate = Annotated[str, typer.Option(help="If the key is taken: return, reject or replace.")]
Delay = Annotated[str, typer.Option(metavar="DURATION", help="Start this long from now, such as 90s or 2h.")]
At = Annotated[str | None, typer.Option(metavar="TIME", help="Start at this time, such as 2030-01-31T08:00:00Z.")]
Priority = Annotated[int, typer.Option(help="Higher numbers are claimed first.")]
OwnPriority = Annotated[
    int | None, typer.Option("--priority", help="Higher numbers are claimed first (default: as its task says, or 0).")
]
Cap = Annotated[list[str] | None, typer.Option("--cap", help="Capability that its worker must have.")]
Mutex = Annotated[str | None, typer.Option(help="Only one job with this name runs at a time.")]
Label = Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Label.")]
Correlation = Annotated[str, typer.Option(help="Correlation id; its children inherit it.")]
LifecycleName = Annotated[str, typer.Option("--lifecycle", help="Its lifecycle.")]
Attempts = Annotated[int | None, typer.Option(help="Maximum number of attempts.")]
Timeout = Annotated[str | None, typer.Option(metavar="DURATION", help="Maximum running time of an attempt.")]
Parent = Annotated[str | None, typer.Option(metavar="ID", help="Job or run that it is a part of.")]
Step = Annotated[
    str | None, typer.Option("--step", metavar="NAME", help="Its name in its parent; adding it again adds nothing.")
]
After = Annotated[
    list[str] | None, typer.Option("--after", "--need", metavar="ID", help="Job that must succeed before.")
]
AfterEnd = Annotated[list[str] | None, typer.Option("--after-end", metavar="ID", help="Job that must end before.")]
AfterStep = Annotated[
    list[str] | None,
    typer.Option("--after-step", metavar="NAME", help="Step of its parent that must succeed before; may come later."),
]

Options = Annotated[
    str | None, typer.Option(metavar="JSON", help='Options by name, as in {"checks": {"jobs": ["lint"]}}.')
]


def submit(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Name of the task, as its worker knows it.")],
    arg: Arg = None,
    given: Input = None,
    queue: Queue = None,
    key: Key = None,
    on_duplicate: OnDuplicate = "return",
    delay: Delay = "0s",
    at: At = None,
    priority: OwnPriority = None,
    cap: Cap = None,
    mutex: Mutex = None,
    label: Label = None,
    correlation: Correlation = "",
    lifecycle: LifecycleName = "job",
    attempts: Attempts = None,
    timeout: Timeout = None,
    parent: Parent = None,
    step: Step = None,
    after: After = None,
    after_end: AfterEnd = None,
    after_step: AfterStep = None,
    options: Options = None,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Submit a job; what is left out is as the stored rules of its task say. When piped, only its id is printed."""
    named = {"queue": queue, "priority": priority, "capabilities": tuple(cap) if cap else None}
    rules: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    with open_app(db, tenant, make=True) as app:
        work = Work(
            task=task, lifecycle=lifecycle, input=parse_input(arg, given), key=key, on_duplicate=on_duplicate,
            delay_us=parse_length("delay", delay), at_us=None if at is None else parse_instant(at), mutex=mutex,
            labels=encode(parse_pairs("label", label)), correlation=correlation, attempts=attempts,
            timeout_us=None if timeout is None else parse_length("timeout", timeout),
            parent=None if parent is None else find_unit(app, parent),
            after=tuple(find_unit(app, text) for text in after or ()), needs=tuple(after_step or ()),
            after_end=tuple(find_unit(app, text) for text in after_end or ()), step=step, explicit=tuple(rules),
            options=options, **rules,
        )  # fmt: skip
        (submitted,) = app.send(Submit(tenant=tenant, actor=get_actor(actor), reason=reason, work=(work,)))
        job = app.job(submitted.unit)
        name, state = job.id, job.state
    if json:
        print_json({"id": name, "created": submitted.created, "replaced": submitted.replaced, "state": state})
    elif on_terminal():
        was = "submitted" if submitted.created else f"there already, under its {'name' if key is None else 'key'}"
        print_line(f"{name} was {was}; it is {state}. Look: interlock why {name}")
    else:
        print_line(name)


def parse_input(arguments: Sequence[str] | None, given: str | None) -> str:
    """Return the input of a job as JSON text.

    Raises:
        InterlockError: both are given, or `given` is not JSON.
    """
    if given is None:
        return encode({name: parse_value(text) for name, text in parse_pairs("arg", arguments).items()})
    if arguments:
        raise InterlockError("give --arg or --input, not both")
    try:
        msgspec.json.decode(given)
    except msgspec.MsgspecError as error:
        raise InterlockError(f'--input is not JSON: {error}; quote it, as in --input \'{{"to": "a@b.c"}}\'') from None
    return given


def parse_pairs(name: str, words: Sequence[str] | None) -> dict[str, str]:
    """Return the values of an option that is given as NAME=VALUE, by name.

    Raises:
        InterlockError: one of them is not.
    """
    split = [word.partition("=") for word in words or ()]
    for word, (left, middle, _) in zip(words or (), split, strict=True):
        if not left or not middle:
            raise InterlockError(f"--{name} '{word}' is not allowed; allowed is NAME=VALUE")
    return {left: right for left, _, right in split}


def parse_value(text: str) -> Any:
    """Return the value of a text that is JSON, or else the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text


def encode(value: Any) -> str:
    """Return a value as JSON text."""
    return msgspec.json.encode(value).decode()


def parse_instant(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InterlockError(f"--at '{text}' is not a time; allowed is 2030-01-31T08:00:00Z, for example") from None
    return instant_us("--at", at)
