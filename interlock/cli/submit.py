"""`interlock submit`: submit a job without the program that defines its task."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from interlock.cli.options import DEFAULT, Actor, Tenant, Url, Why, find_unit, get_actor, open_app, parse_length
from interlock.cli.output import Json, on_terminal, print_json, print_line
from interlock.client.app import App
from interlock.client.durations import instant_us
from interlock.client.tasks import counted, exclusive, rated, shared
from interlock.kernel.commands import Resource, Submit, Submitted, Work
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
ResourceOption = Annotated[
    list[str] | None,
    typer.Option("--resource", help="What it needs while it runs: db (alone), db:shared, gpu:2/8 (2 of 8), api:10/1s."),
]
Label = Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Label.")]
Correlation = Annotated[str, typer.Option(help="Correlation id; its children inherit it.")]
LifecycleName = Annotated[str, typer.Option("--lifecycle", help="Its lifecycle.")]
Attempts = Annotated[int | None, typer.Option(help="Maximum number of attempts.")]
Timeout = Annotated[str | None, typer.Option(metavar="DURATION", help="Maximum running time of an attempt.")]
QueueTimeout = Annotated[str | None, typer.Option(metavar="DURATION", help="Maximum time until it is claimed.")]
PlanTimeout = Annotated[str | None, typer.Option(metavar="DURATION", help="Maximum time until it is planned.")]
CancelTimeout = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Time that its worker has to stop, after a cancel.")
]
Losses = Annotated[int | None, typer.Option(help="Maximum number of lost leases; else they count as attempts.")]
Settle = Annotated[
    str | None,
    typer.Option(
        help="For a run: fail as soon as a step fails (first, the default), or once all steps have ended (all)."
    ),
]
DIGITS_MAX = 12
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
    resource: ResourceOption = None,
    label: Label = None,
    correlation: Correlation = "",
    lifecycle: LifecycleName = "job",
    attempts: Attempts = None,
    timeout: Timeout = None,
    queue_timeout: QueueTimeout = None,
    plan_timeout: PlanTimeout = None,
    cancel_timeout: CancelTimeout = None,
    losses: Losses = None,
    settle: Settle = None,
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
    """Submit a job. The stored rules of its task fill in what you leave out. When piped, only its id is printed."""
    named = {"queue": queue, "priority": priority, "capabilities": tuple(cap) if cap else None}
    rules: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    clocks = parse_clocks(
        timeout=timeout, queue_timeout=queue_timeout, plan_timeout=plan_timeout, cancel_timeout=cancel_timeout
    )
    with open_app(db, tenant, make=True) as app:
        work = Work(
            task=task, lifecycle=lifecycle, input=parse_input(arg, given), key=key, on_duplicate=on_duplicate,
            delay_us=parse_length("delay", delay), at_us=None if at is None else parse_instant(at), mutex=mutex,
            labels=encode(parse_pairs("label", label)), correlation=correlation, attempts=attempts,
            resources=tuple(map(parse_resource, resource or ())), losses=losses, settle=settle, **clocks,
            parent=None if parent is None else find_unit(app, parent),
            after=tuple(find_unit(app, text) for text in after or ()), needs=tuple(after_step or ()),
            after_end=tuple(find_unit(app, text) for text in after_end or ()), step=step, explicit=tuple(rules),
            options=options, **rules,
        )  # fmt: skip
        (submitted,) = app.send(Submit(tenant=tenant, actor=get_actor(actor), reason=reason, work=(work,)))
        print_submitted(app, submitted, "name" if key is None else "key", json)


def print_submitted(app: App, submitted: Submitted, known_by: str, json: bool) -> None:
    """Print the job that a submit made, or found under its name or key."""
    job = app.job(submitted.unit)
    name, state = job.id, job.state
    if json:
        print_json({"id": name, "created": submitted.created, "replaced": submitted.replaced, "state": state})
    elif on_terminal():
        was = "submitted" if submitted.created else f"there already, under its {known_by}"
        print_line(f"{name} was {was}; it is {state}. Look: interlock why {name}")
    else:
        print_line(name)


def parse_clocks(**lengths: str | None) -> dict[str, Any]:
    """Return the fields of work that options for lengths of time stand for.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    given = {name: text for name, text in lengths.items() if text is not None}
    return {f"{name}_us": parse_length(name.replace("_", "-"), text) for name, text in given.items()}


def parse_resource(text: str) -> Resource:
    """Return the resource that an option names.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    name, _, use = text.partition(":")
    count, _, whole = use.partition("/")
    if use in ("", "exclusive"):
        return exclusive(name)
    if use == "shared":
        return shared(name)
    if not count.isdecimal() or not whole or len(count) > DIGITS_MAX or len(whole) > DIGITS_MAX:
        allowed = "NAME, NAME:shared, NAME:2/8 (2 of 8) and NAME:10/1s (a rate)"
        raise InterlockError(f"--resource {text!r} is not allowed; allowed are {allowed}")
    return counted(name, int(count), of=int(whole)) if whole.isdecimal() else rated(name, int(count), whole)


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
    """Parse a time as ISO 8601 with a time zone, as microseconds UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InterlockError(f"--at '{text}' is not a time; allowed is 2030-01-31T08:00:00Z, for example") from None
    return instant_us("--at", at)
