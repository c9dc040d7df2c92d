"""What a page and an action of a page are, and the checks that every request to one passes.

A page is data, as an operation of the API is: a path, the scope that it needs, a function that gathers what it shows,
and a template. It reads and acts only by asking operations of the API, in the name of the key that signed in: so
nothing on a page can do what the API would refuse, and both use the same words.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec
from litestar import Response
from litestar.datastructures import Cookie

from interlock.dashboard.menu_counts import MenuCounts
from interlock.dashboard.render import add_templates, render
from interlock.dashboard.sessions import COOKIE, LASTS_SECONDS, Session, Sessions
from interlock.dashboard.sharing import SharedAnswers
from interlock.kernel.api_keys import allows
from interlock.kernel.commands import Command
from interlock.kernel.errors import Contended, InterlockError, TooSlow, Unavailable
from interlock.server.auth import read_loop_time, require_scope
from interlock.server.errors import ApiError, make_api_error
from interlock.server.logs import write_log
from interlock.server.operations import NoQuery, Operation, Reply, Request, ServerState, make_request_id
from interlock.server.request_pipeline import (
    HttpRequest,
    RequestPipeline,
    check_depth_and_nul,
    log_request,
    parse_query,
)
from interlock.server.sse import EventStream
from interlock.server.start import is_loopback
from interlock.store.connection import Connection
from interlock.store.queries.feed import NOW, format_cursor, parse_cursor
from interlock.store.queries.snapshots import read_epoch

P = ParamSpec("P")
T = TypeVar("T")
UI = "/ui"
FORM_MAX = 1 << 20  # bytes
ANSWERS_MAX = 200  # that are remembered
MACHINERY = "Machinery"  # the part of the menu about what runs the work
AGAIN_SECONDS = "2"  # after which a page asks again for a database that is away
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin", "Content-Security-Policy": POLICY,
}  # fmt: skip
PLAIN_HTTP = (
    "signing in over plain HTTP would show the key to the network: serve with --tls-cert and --tls-key, or behind a "
    "proxy with --public-url https://…"
)


class PublicUrl(msgspec.Struct, frozen=True):
    """Where people reach the pages, if not at a loopback address."""

    scheme: str
    host: str  # with its port
    prefix: str = ""

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.host}"


def parse_public_url(text: str) -> PublicUrl:
    """Returns where people reach the pages.

    Raises:
        InterlockError: it is no such URL.
    """
    try:
        parts = urlsplit(text)
        right = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and not (parts.query or parts.fragment or parts.username)
        )
    except ValueError:
        right = False
    if not right:
        raise InterlockError(f"--public-url '{text}' is not allowed; allowed is http(s)://host[:port][/prefix]")
    return PublicUrl(parts.scheme, parts.netloc, parts.path.rstrip("/"))


class WebPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page: a GET that needs no script, whose whole state is its URL."""

    path: str  # below /ui
    template: str = ""  # without one, what the call gathers as `text` is shown as plain text
    call: Callable[["PageRequest"], Awaitable[dict[str, Any]]]
    scope: str | None = "read"
    live: bool = False  # it is shown anew when something happens
    menu: str = ""  # its name in the menu, if it is there
    group: str = ""  # of the menu
    icon: str = ""
    actions: tuple["Action", ...] = ()  # of its buttons
    folder: Path | None = None  # of its template, if that is not one of ours


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What a button does: it sends one request to the API, and leads back to a page."""

    path: str  # below /ui
    operation: str  # the path of the POST that it sends
    page: str  # the path below /ui that it leads to, with the same parameters
    fields: tuple[str, ...] = ("reason",)  # of the form, that the body has
    leads_to_new: bool = False  # to the job that was made

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class PageRequest:
    """One request to a page: who looks, what the URL says, and a way to ask the API."""

    def __init__(
        self, site: "Site", session: Session, page: str, path: Mapping[str, str], query: Sequence[tuple[str, str]]
    ) -> None:
        self.site, self.session, self.page, self.path, self.pairs = site, session, page, path, list(query)
        self.caller = session.caller
        self.request_id = make_request_id()
        self.slow: list[str] = []  # the parts of the page whose questions took too long

    @property
    def query(self) -> dict[str, str]:
        """The query, each name with its last value."""
        return dict(self.pairs)

    def may(self, scope: str) -> bool:
        return allows(self.caller.scopes, scope)

    async def wait_for(self, part: str, answer: Awaitable[T]) -> T | None:
        """Returns an answer; None if it took too long. Then the page says that this part of it is left out."""
        try:
            return await answer
        except TooSlow:
            self.slow.append(part)
            return None

    async def ask(
        self, method: str, path: str, query: Sequence[tuple[str, str]] = (), *, body: Any = None,
        key: str | None = None, parameters: Mapping[str, str] | None = None,
    ) -> Any:  # fmt: skip
        """Asks an operation of the API and returns its answer as plain values. Raises what the operation raises."""
        operation = self.site.operations[method, path]
        request = self.make_request(operation, query, {}, parameters or {})
        request.idempotency_key = key
        if operation.body is not None:
            request.body = convert_body(operation, body or {})
        answer = await operation.call(request)
        return msgspec.to_builtins(answer.body if isinstance(answer, Reply) else answer)

    async def open_stream(self, path: str, query: Sequence[tuple[str, str]]) -> AsyncIterator[bytes]:
        """Asks an operation for its answer as a stream of events. Raises what the operation raises."""
        operation = self.site.operations["GET", path]
        stream: EventStream = await operation.call(
            self.make_request(operation, query, {"accept": "text/event-stream"}, {})
        )
        return stream.pieces

    def make_request(
        self, operation: Operation, query: Sequence[tuple[str, str]], headers: Mapping[str, str],
        parameters: Mapping[str, str],
    ) -> Request:  # fmt: skip
        """Returns a request to an operation in the name of the key.

        Raises:
            ApiError: the key lacks its scope.
        """
        if operation.scope is not None:
            require_scope(self.caller, operation.scope)
        request = Request(self.site.server, self.caller, parameters, headers, self.check_access)
        request.request_id = self.request_id
        request.query = parse_query(operation.query or NoQuery, urlencode(query).encode())
        return request

    async def read(
        self, view: Callable[Concatenate[Connection, int, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:  # fmt: skip
        """Reads a view of the key's tenant within the time that a page has.

        Raises:
            TooSlow: the view took longer.
        """
        request = Request(self.site.server, self.caller, {}, {}, self.check_access)
        return await request.read(view, *args, **kwargs)

    async def find_unit(self) -> int:
        """Returns the unit that the path of the page names.

        Raises:
            Unknown: there is none.
        """
        return await Request(self.site.server, self.caller, self.path, {}, self.check_access).find_unit()

    async def send(self, command: Command[Any]) -> Any:
        """Sends a command in the name of the key."""
        request = Request(self.site.server, self.caller, {}, {}, self.check_access)
        request.request_id = self.request_id
        return await request.send(command)

    async def check_access(self) -> Any:
        return self.caller


def convert_body(operation: Operation, body: Mapping[str, Any]) -> Any:
    """Returns the body of an operation.

    Raises:
        ApiError: a value that is not allowed.
    """
    try:
        converted = msgspec.convert(body, operation.body, strict=False)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"the form is wrong: {error}") from None
    check_depth_and_nul(converted, msgspec.json.encode(body))
    return converted


class Site:
    """All pages of a server."""

    def __init__(
        self, server: ServerState, pipeline: RequestPipeline, operations: Sequence[Operation], pages: Sequence[WebPage],
        actions: Sequence[Action], public: PublicUrl | None,
    ) -> None:  # fmt: skip
        self.server, self.public = server, public
        self.operations = {(operation.method, operation.path): operation for operation in operations}
        self.pages = {page.path: page for page in pages}
        actions = [*actions, *(action for page in pages for action in page.actions)]
        self.actions = [action for action in actions if ("POST", action.operation) in self.operations]
        self.counts = MenuCounts()
        for folder in {page.folder for page in pages if page.folder}:
            add_templates(folder)
        self.sessions = Sessions(pipeline.keys)
        self.shared = SharedAnswers()
        # What differs between two sessions of a key stands for itself in a shared answer.
        self.token_place, self.key_place = secrets.token_hex(16), secrets.token_hex(16)
        self.answers: dict[str, asyncio.Future[Any]] = {}  # to forms that are answered once

    async def answer_once(self, key: str, call: Callable[[], Awaitable[T]]) -> T:
        """Returns what a call answers; a second one with the same key gets the answer of the first, if it has one."""
        if key not in self.answers:
            for old in list(self.answers)[: max(0, len(self.answers) - ANSWERS_MAX)]:
                del self.answers[old]
            self.answers[key] = asyncio.ensure_future(call())
        try:
            answer: T = await asyncio.shield(self.answers[key])
        except Exception:
            self.answers.pop(key, None)  # nothing was done, so it may be tried again
            raise
        return answer

    # Who asks, and from where.

    def check_place(self, http_request: HttpRequest) -> None:
        """Raises ApiError for a host that is not ours, or a form that another site sends."""
        host = http_request.headers.get("host", "")
        if self.public is not None:
            if host != self.public.host and not is_loopback(split_host(host)):
                raise ApiError(400, f"the pages are at {self.public.origin}{self.public.prefix}{UI}/")
        elif not is_loopback(split_host(host)):
            raise ApiError(400, "the pages are served to this machine only; start the server with --public-url")
        if http_request.method != "POST":
            return
        site, origin = http_request.headers.get("sec-fetch-site"), http_request.headers.get("origin")
        if site not in (None, "same-origin", "none"):
            raise ApiError(403, "this form was sent by another site")
        if origin not in (None, *self.list_origins(http_request, host)):
            raise ApiError(403, "this form was sent by another site")

    def list_origins(self, http_request: HttpRequest, host: str) -> list[str]:
        own = [f"{http_request.url.scheme}://{host}"]
        return [self.public.origin, *own] if self.public else own

    def is_private(self, http_request: HttpRequest) -> bool:
        """Returns whether what is sent is encrypted, or stays on this machine."""
        scheme = self.public.scheme if self.public else http_request.url.scheme
        return scheme == "https" or is_loopback(split_host(http_request.headers.get("host", "")))

    def make_cookie(self, http_request: HttpRequest, value: str, seconds: int = LASTS_SECONDS) -> Cookie:
        scheme = self.public.scheme if self.public else http_request.url.scheme
        return Cookie(
            key=COOKIE, value=value, path=f"{self.prefix}{UI}", max_age=seconds, httponly=True, samesite="lax",
            secure=scheme == "https",
        )  # fmt: skip

    @property
    def prefix(self) -> str:
        return self.public.prefix if self.public else ""

    async def find_session(self, http_request: HttpRequest) -> Session | None:
        return await self.sessions.find(http_request.cookies.get(COOKIE, ""))

    # Answers.

    async def answer(self, page: WebPage, http_request: HttpRequest) -> Response[Any]:
        """Answers a request for a page, whatever happens, and writes it to the log."""
        began, session = read_loop_time(), None
        try:
            self.check_place(http_request)
            session = await self.find_session(http_request)
            if session is None:
                response = self.lead_to_sign_in(http_request)
            else:
                response = await self.show(page, session, dict(http_request.path_params), read_pairs(http_request))
        except Exception as error:
            response = self.show_error(error, session)
            if isinstance(error, (Contended, Unavailable)):
                response.headers["Refresh"] = AGAIN_SECONDS
        return finish(response, http_request, f"{UI}{page.path}", began, session)

    async def show(
        self, page: WebPage, session: Session, path: Mapping[str, str], pairs: Sequence[tuple[str, str]],
        refusal: ApiError | None = None,
    ) -> Response[Any]:  # fmt: skip
        """Shows a page, above which stands why something was refused, if something was."""
        request = self.make_request(page, session, path, pairs)
        try:
            text = await self.make_text(page, request, str(refusal) if refusal else "")
        except MovedPage as moved:
            return redirect(f"{self.prefix}{UI}{moved.path}")
        if not page.template:
            return Response(text, media_type="text/plain")
        status = refusal.status if refusal else 200
        return Response(self.fill_places(text, session), media_type="text/html", status_code=status)

    async def show_change(
        self, page: WebPage, session: Session, path: Mapping[str, str], pairs: Sequence[tuple[str, str]], instant: int
    ) -> str:
        """Returns a page as it is after an instant; who looks at the same page with the same key shares it."""
        request = self.make_request(page, session, path, pairs)
        looked_at = (session.caller, page.path, tuple(request.path.items()), tuple(pairs))
        text = await self.shared.share(instant, looked_at, partial(self.make_text, page, request))
        return self.fill_places(text, session)

    def make_request(
        self, page: WebPage, session: Session, path: Mapping[str, str], pairs: Sequence[tuple[str, str]]
    ) -> PageRequest:
        """Returns a request to a page.

        Raises:
            ApiError: the key lacks its scope.
        """
        if page.scope is not None:
            require_scope(session.caller, page.scope)
        return PageRequest(self, session, page.path, {name: str(value) for name, value in path.items()}, pairs)

    def fill_places(self, text: str, session: Session) -> str:
        """Returns a page with the token of its session, and with a key for its forms."""
        return text.replace(self.token_place, session.make_form_token()).replace(
            self.key_place, secrets.token_hex(16)
        )  # fmt: skip

    def find_page(self, path: str) -> tuple[WebPage, dict[str, str]]:
        """Returns the page at a path below /ui, and the parameters in it.

        Raises:
            ApiError: there is none.
        """
        parts = path.split("/")
        for page in sorted(self.pages.values(), key=lambda page: page.path.count("{")):
            names = page.path.split("/")
            if len(names) == len(parts) and all(
                name == part or (name[:1] == "{" and part) for name, part in zip(names, parts, strict=True)
            ):
                given = zip(names, parts, strict=True)
                return page, {name[1:-1]: unquote(part) for name, part in given if name[:1] == "{"}
        raise ApiError(404, "there is no such page")

    async def make_text(self, page: WebPage, request: PageRequest, refusal: str = "") -> str:
        """Makes the text of a page, with places for the token and the key of its forms."""
        # What happens from here on is told to the page by its stream, also before that is open.
        cursor = await request.read(read_cursor) if page.scope else ""
        gathered, counts = await asyncio.gather(page.call(request), self.counts.find(request))
        if not page.template:
            return str(gathered["text"])
        shown = {"live": page.live, "run": "", "slow": request.slow, **gathered}
        shown |= {"refusal": refusal, "query": request.query, "pairs": request.pairs}
        if shown["live"]:
            own = fill(page.path, request.path) + (f"?{urlencode(request.pairs)}" if request.pairs else "")
            shown["live"] = urlencode({"page": own, "after": cursor, **({"run": shown["run"]} if shown["run"] else {})})
        known = self.describe(request.session, page) | {"form_token": self.token_place, "form_key": self.key_place}
        return render(page.template, **{**known, "counts": counts}, **shown)

    def describe(self, session: Session | None, page: WebPage | None = None) -> dict[str, Any]:
        """Returns what every template knows: the menu, who looks, and the token of forms."""
        menu: dict[str, list[WebPage]] = {}
        for each in self.pages.values():
            if session and each.menu and (each.scope is None or allows(session.caller.scopes, each.scope)):
                menu.setdefault(each.group, []).append(each)
        return {
            "menu": menu, "counts": {}, "current": page.path if page else "", "base": f"{self.prefix}{UI}",
            "caller": session.caller if session else None,
            "form_token": session.make_form_token() if session else "", "form_key": secrets.token_hex(16),
            "may": (lambda scope: allows(session.caller.scopes, scope)) if session else (lambda scope: False),
        }  # fmt: skip

    def lead_to_sign_in(self, http_request: HttpRequest) -> Response[Any]:
        query = http_request.scope["query_string"].decode("ascii", "replace")
        wanted = http_request.url.path.removeprefix(self.prefix) + (f"?{query}" if query else "")
        return redirect(f"{self.prefix}{UI}/login?next={quote(wanted)}")

    def show_error(self, error: Exception, session: Session | None) -> Response[Any]:
        """Shows a page that says what went wrong. A bug is written to the log with its traceback."""
        answer = make_page_error(error)
        if answer.status == 500:
            write_log(logging.ERROR, "page failed", error)
        text = render("error.html", **self.describe(session), status=answer.status, message=str(answer), refusal="")
        return Response(text, media_type="text/html", status_code=answer.status, headers=answer.headers)

    async def act(self, action: Action, http_request: HttpRequest) -> Response[Any]:
        """Does what a button says, and leads back to its page; a refusal is shown there, in the engine's words."""
        began, session = read_loop_time(), None
        try:
            self.check_place(http_request)
            session, form = await self.read_own_form(http_request)
            path = {name: str(value) for name, value in http_request.path_params.items()}
            response = await self.act_for(action, session, path, form)
        except Exception as error:
            response = self.show_error(error, session)
        return finish(response, http_request, f"{UI}{action.path}", began, session)

    async def read_own_form(self, http_request: HttpRequest) -> tuple[Session, dict[str, str]]:
        """Returns the session that a form is sent by, and its fields.

        Raises:
            ApiError: a form of another session.
        """
        session = await self.find_session(http_request)
        if session is None:
            raise ApiError(401, "the session has ended; sign in again")
        form = dict(await read_form(http_request))
        if not session.is_own_token(form.get("form_token", "")):
            raise ApiError(403, "this form is not of your session; go back, load the page again, and send it again")
        return session, form

    async def act_for(
        self, action: Action, session: Session, path: Mapping[str, str], form: Mapping[str, str]
    ) -> Response[Any]:
        request = PageRequest(self, session, action.page, path, ())
        body = {name: form[name] for name in action.fields if form.get(name)}
        operation = self.operations["POST", action.operation]
        key = form.get("form_key") if operation.takes_key else None
        place = fill(action.page, path)
        try:
            done = await request.ask("POST", action.operation, body=body, key=key, parameters=path)
        except Exception as error:
            refusal = make_page_error(error)
            if refusal.status in (404, 500):
                raise
            return await self.show(self.pages[action.page], session, path, (), refusal)
        if action.leads_to_new and isinstance(done, dict) and done.get("id"):
            place = f"/jobs/{done['id']}"
        return redirect(f"{self.prefix}{UI}{place}")


class MovedPage(Exception):
    """What was asked for is at another place below /ui."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def read_cursor(connection: Connection, tenant: int) -> str:
    """Returns the cursor behind everything that has happened."""
    return format_cursor(read_epoch(connection) or "", parse_cursor(connection, NOW))


def make_page_error(error: Exception) -> ApiError:
    """Returns what a page says of an error."""
    if isinstance(error, TooSlow):
        return ApiError(503, f"{error}; narrow it down, or look again later", code="TOO_SLOW")
    return make_api_error(error, by_id=True)


def fill(path: str, parameters: Mapping[str, str]) -> str:
    """Returns a path with its parameters in place."""
    for name, value in parameters.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    return path


def redirect(place: str) -> Response[Any]:
    """Returns a response that leads elsewhere on this server."""
    return Response("", status_code=303, headers={"Location": place}, media_type="text/html")


def read_pairs(http_request: HttpRequest) -> list[tuple[str, str]]:
    """Returns the query of a request without empty fields, which forms send for what was left open."""
    return parse_pairs(http_request.scope["query_string"].decode("ascii", "replace"))


def parse_pairs(text: str) -> list[tuple[str, str]]:
    """Returns a query as pairs, without empty fields.

    Raises:
        ApiError: it cannot be read.
    """
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise ApiError(400, "the query cannot be read; it is name=value, joined by &") from None
    return [(name, value) for name, value in pairs if value]


async def read_form(http_request: HttpRequest) -> list[tuple[str, str]]:
    """Returns the fields of a form.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    media = http_request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded":
        raise ApiError(415, "a form is wanted, as a page sends it")
    body = await http_request.body()
    if len(body) > FORM_MAX:
        raise ApiError(413, f"the form has more than {FORM_MAX:,} bytes")
    try:
        return parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except (ValueError, UnicodeError):
        raise ApiError(400, "the form cannot be read") from None


def split_host(host: str) -> str:
    """Returns the host of a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def finish(
    response: Response[Any], http_request: HttpRequest, route: str, began: float, session: Session | None
) -> Response[Any]:
    """Sets the headers that every page has, and writes the request to the log."""
    request_id = make_request_id()
    response.headers.update({**HEADERS, "X-Request-Id": request_id})
    caller = session.caller if session else None
    log_request(http_request.method, route, response.status_code, began, request_id, caller)
    return response
