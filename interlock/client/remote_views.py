"""The views that can be asked over the network: which they are, what they take and what they tell."""

import inspect
from collections.abc import Callable, Iterable
from functools import cache
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from interlock.client.http_codec import strict
from interlock.client.inbox import inbox_item, inbox_page
from interlock.client.schedules import why_schedule
from interlock.client.selections import jobs_in_order, jobs_page
from interlock.client.trees import picture
from interlock.client.why.explain import explain
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Unit, Worker
from interlock.store.queries import lists, views
from interlock.store.queries.dead_letters import Letters

PAGE_MAX = 1_000
YEAR_9999 = 253_000_000_000_000_000  # microseconds
LIFECYCLES = "lifecycles"  # a parameter that is not sent: the server takes its own
BOUNDS: dict[str, Meta] = {
    "limit": Meta(ge=1, le=PAGE_MAX),
    "at": Meta(ge=0, le=YEAR_9999),
    "units": Meta(max_length=PAGE_MAX),
}
VIEWS: tuple[Callable[..., Any], ...] = (
    views.glimpse,
    views.view,
    views.views_of,
    views.listing,
    views.events_of,
    views.last_event,
    views.notes_of,
    views.artifacts_of,
    views.children_of,
    views.needs_of,
    views.schedules_of,
    views.schedule_of,
    views.skipped_of,
    views.workers_seen,
    views.done_again,
    lists.amount,
    lists.refs_of,
    jobs_page,
    jobs_in_order,
    explain,
    picture,
    inbox_page,
    inbox_item,
    why_schedule,
)


class Question(msgspec.Struct, frozen=True):
    """A view as it is asked: its name, what it takes, and what it tells."""

    name: str
    view: Callable[..., Any]
    takes: type[msgspec.Struct]
    tells: type[msgspec.Struct]
    words: tuple[str, ...]  # its parameters, in order

    @property
    def with_lives(self) -> bool:
        return LIFECYCLES in self.words

    @property
    def path(self) -> str:
        return f"/v1/views/{self.name}"

    def said(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """What a caller gives, as it is sent."""
        given = {**dict(zip(self.words, args, strict=False)), **kwargs}
        given.pop(LIFECYCLES, None)
        return msgspec.json.encode(given)

    def given(self, body: msgspec.Struct) -> dict[str, Any]:
        """What a request says, as the view takes it."""
        return {name: plain(getattr(body, name)) for name in body.__struct_fields__}


def questions(of_plugins: Iterable[Callable[..., Any]] = ()) -> dict[Callable[..., Any], Question]:
    """The views that can be asked over the network, by function: those of the client, and those of plugins."""
    return {view: question(view) for view in (*VIEWS, *of_plugins)}


def question_of(view: Callable[..., Any], of_plugins: Iterable[Callable[..., Any]] = ()) -> Question:
    """How a view is asked over the network.

    Raises:
        InterlockError: if the view can be asked only beside the database.
    """
    found = questions(of_plugins).get(view)
    if found is None:
        name = getattr(view, "__name__", "this")
        raise InterlockError(f"'{name}' cannot be asked over HTTP; ask it beside the database")
    return found


@cache
def question(view: Callable[..., Any]) -> Question:
    hints, parameters = get_type_hints(view), inspect.signature(view).parameters
    words = tuple(parameters)[2:]
    name = view.__name__
    fields = [field(one, hints[one], parameters[one].default) for one in words if one != LIFECYCLES]
    asked = msgspec.defstruct(
        f"{title(name)}Asked", fields, namespace={"__doc__": view.__doc__}, frozen=True, kw_only=True,
        forbid_unknown_fields=True,
    )  # fmt: skip
    told = msgspec.defstruct(f"{title(name)}Told", [("answer", hints["return"])], frozen=True)
    return Question(name, view, asked, told, words)


def field(name: str, hint: Any, default: Any) -> Any:
    kind = strict(hint)
    if name in BOUNDS:
        bound = BOUNDS[name]
        bounded: Any = Annotated[int, bound] if bound.max_length is None else Annotated[kind, bound]
        kind = bounded | None if default is None else bounded
    return (name, kind) if default is inspect.Parameter.empty else (name, kind, default)


def title(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def plain(value: Any) -> Any:
    """A filter that was sent, as the store knows it."""
    for kind in (views.Filter, Letters):
        if isinstance(value, strict(kind)):
            return msgspec.convert(value, kind, from_attributes=True)
    return value


def bare(value: Any) -> Any:
    """What a view tells, without all from which a lease could be guessed or made."""
    match value:
        case Unit():
            return msgspec.structs.replace(value, lease_hash=None)
        case Worker():
            return msgspec.structs.replace(value, claim_key=None, claim_nonce_hash=None)
        case views.View():
            return msgspec.structs.replace(value, unit=bare(value.unit))
        case list() | tuple():
            return type(value)(map(bare, value))
        case dict():
            return {key: bare(one) for key, one in value.items()}
    return value
