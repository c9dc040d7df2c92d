"""The list of views that can be read over HTTP, with their parameters and results."""

import inspect
from collections.abc import Callable, Iterable
from functools import cache
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from interlock.client.http_codec import make_strict
from interlock.client.inbox import find_inbox_item, read_inbox_page
from interlock.client.progress import read_plan, read_progress
from interlock.client.schedules import explain_schedule
from interlock.client.selections import read_jobs_in_order, read_jobs_page
from interlock.client.trees import read_tree_snapshot
from interlock.client.why import explain
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Unit, WorkerRow
from interlock.plugins.pauses.queries import pauses_of
from interlock.store.queries import feed, lists, views
from interlock.store.queries.dead_letters import DeadLetterConditions

PAGE_MAX = 1_000
UNITS_MAX = 2**62
YEAR_9999 = 253_000_000_000_000_000  # microseconds
LIFECYCLES = "lifecycles"  # a parameter that is not sent: the server takes its own
BOUNDS: dict[str, Meta] = {
    "limit": Meta(ge=1, le=PAGE_MAX),
    "first": Meta(ge=0, le=UNITS_MAX),
    "at": Meta(ge=0, le=YEAR_9999),
    "units": Meta(max_length=PAGE_MAX),
}
# By the names that they have in URLs, which stay as they are.
VIEWS: dict[str, Callable[..., Any]] = {
    "glimpse": views.read_summary,
    "view": views.view,
    "views_of": views.views_of,
    "listing": views.listing,
    "events_of": views.events_of,
    "feed_page": feed.read_feed_page,
    "last_event": views.last_event,
    "notes_of": views.notes_of,
    "artifacts_of": views.artifacts_of,
    "children_of": views.children_of,
    "needs_of": views.needs_of,
    "child_named": views.child_named,
    "schedules_of": views.schedules_of,
    "schedule_of": views.schedule_of,
    "skipped_of": views.read_skipped,
    "pauses_of": pauses_of,
    "workers_seen": views.workers_seen,
    "done_again": views.read_done_again,
    "amount": lists.amount,
    "refs_of": lists.refs_of,
    "jobs_page": read_jobs_page,
    "jobs_in_order": read_jobs_in_order,
    "explain": explain,
    "picture": read_tree_snapshot,
    "progress": read_progress,
    "plan": read_plan,
    "inbox_page": read_inbox_page,
    "inbox_item": find_inbox_item,
    "why_schedule": explain_schedule,
}


class RemoteView(msgspec.Struct, frozen=True):
    """A view as it is read over HTTP: its name, and the types of the request and the response."""

    name: str
    view: Callable[..., Any]
    request_type: type[msgspec.Struct]
    response_type: type[msgspec.Struct]
    parameters: tuple[str, ...]  # in their order, without the connection and the tenant

    @property
    def takes_lifecycles(self) -> bool:
        return LIFECYCLES in self.parameters

    @property
    def path(self) -> str:
        return f"/v1/views/{self.name}"

    def encode_request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Encodes the arguments of a caller as the body of a request."""
        arguments = {**dict(zip(self.parameters, args, strict=False)), **kwargs}
        arguments.pop(LIFECYCLES, None)
        return msgspec.json.encode(arguments)

    def decode_request(self, body: msgspec.Struct) -> dict[str, Any]:
        """Returns the arguments that the body of a request has for the view."""
        return {name: convert_filter(getattr(body, name)) for name in body.__struct_fields__}


def index_remote_views(of_plugins: Iterable[Callable[..., Any]] = ()) -> dict[Callable[..., Any], RemoteView]:
    """Returns every view that can be read over HTTP, by its function: those of the client, and those of plugins."""
    views = {**VIEWS, **{view.__name__: view for view in of_plugins}}
    return {view: make_remote_view(name, view) for name, view in views.items()}


def find_remote_view(view: Callable[..., Any], of_plugins: Iterable[Callable[..., Any]] = ()) -> RemoteView:
    """Returns how a view is read over HTTP.

    Raises:
        InterlockError: it can be read only beside the database.
    """
    remote_view = index_remote_views(of_plugins).get(view)
    if remote_view is None:
        name = getattr(view, "__name__", "this")
        raise InterlockError(f"'{name}' cannot be read over HTTP; read it beside the database")
    return remote_view


@cache
def make_remote_view(name: str, view: Callable[..., Any]) -> RemoteView:
    """Makes the remote form of a view: the types of its request and its response, from its type hints."""
    hints, signature = get_type_hints(view), inspect.signature(view).parameters
    parameters = tuple(signature)[2:]
    title = "".join(word.capitalize() for word in name.split("_"))
    fields = [
        make_bounded_field(each, hints[each], signature[each].default) for each in parameters if each != LIFECYCLES
    ]
    request_type = msgspec.defstruct(
        f"{title}ViewRequest", fields, namespace={"__doc__": view.__doc__}, frozen=True, kw_only=True,
        forbid_unknown_fields=True,
    )  # fmt: skip
    response_type = msgspec.defstruct(f"{title}ViewResponse", [("answer", hints["return"])], frozen=True)
    return RemoteView(name, view, request_type, response_type, parameters)


def make_bounded_field(name: str, hint: Any, default: Any) -> Any:
    """Makes the field of a parameter, with the bounds that it has over HTTP."""
    kind = make_strict(hint)
    if name in BOUNDS:
        bound = BOUNDS[name]
        bounded: Any = Annotated[int, bound] if bound.max_length is None else Annotated[kind, bound]
        kind = bounded | None if default is None else bounded
    return (name, kind) if default is inspect.Parameter.empty else (name, kind, default)


def convert_filter(value: Any) -> Any:
    """Returns a filter that was sent as the store knows it; any other value stays as it is."""
    for kind in (views.Filter, DeadLetterConditions, feed.FeedFilter):
        if isinstance(value, make_strict(kind)):
            return msgspec.convert(value, kind, from_attributes=True)
    return value


def strip_secrets(value: Any) -> Any:
    """Returns what a view returned, without anything from which a lease could be guessed or made."""
    match value:
        case Unit():
            return msgspec.structs.replace(value, lease_hash=None)
        case WorkerRow():
            return msgspec.structs.replace(value, claim_key=None, claim_nonce_hash=None)
        case views.View():
            return msgspec.structs.replace(value, unit=strip_secrets(value.unit))
        case list() | tuple():
            return type(value)(map(strip_secrets, value))
        case dict():
            return {key: strip_secrets(item) for key, item in value.items()}
    return value
