"""One table of all pages and actions, and the routes made from it."""

import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream

from interlock.core.plugin import Registry, load_part
from interlock.dashboard import (
    bulk_pages,
    job_pages,
    list_pages,
    overview,
    run_pages,
    start_pages,
    system_pages,
    values,
    work_pages,
)
from interlock.dashboard.pages import (
    HEADERS,
    MACHINERY,
    PLAIN_HTTP,
    UI,
    Action,
    PageRequest,
    PublicUrl,
    Site,
    WebPage,
    finish,
    make_page_error,
    parse_pairs,
    read_form,
    read_pairs,
    redirect,
)
from interlock.dashboard.render import HERE, render
from interlock.dashboard.sharing import SharedAnswers
from interlock.kernel.commands.operators import REASONS, Bury
from interlock.kernel.errors import InterlockError, StoreError
from interlock.server.auth import read_loop_time, require_scope
from interlock.server.errors import ApiError
from interlock.server.operations import Operation, ServerState, parse_unit_id
from interlock.server.request_pipeline import HttpRequest, RequestPipeline

PAGES = (
    WebPage(path="/", template="overview.html", call=overview.show_overview, menu="Overview", icon="home", live=True),
    WebPage(path="/jobs", template="jobs.html", call=list_pages.list_jobs, menu="Jobs", icon="list", live=True),
    WebPage(path="/runs", template="jobs.html", call=list_pages.list_runs, menu="Runs", icon="tree", live=True),
    WebPage(path="/inbox", template="inbox.html", call=work_pages.show_inbox, menu="Inbox", icon="inbox", live=True),
    WebPage(
        path="/dead-letters", template="dead_letters.html", call=work_pages.show_dead_letters, menu="Dead letters",
        icon="c-dead",
    ),
    WebPage(path="/start", template="tasks.html", call=start_pages.show_tasks, menu="Start", icon="plus"),
    WebPage(
        path="/queues", template="queues.html", call=work_pages.show_queues, menu="Queues", group=MACHINERY,
        icon="hook", live=True,
    ),
    WebPage(
        path="/workers", template="workers.html", call=system_pages.show_workers, menu="Workers", group=MACHINERY,
        icon="worker", live=True,
    ),
    WebPage(
        path="/lifecycles", template="lifecycles.html", call=system_pages.show_lifecycles, menu="Lifecycles",
        group=MACHINERY, icon="life",
    ),
    WebPage(path="/start/form", template="start.html", call=start_pages.show_start),
    WebPage(path="/jobs/{id}", template="job.html", call=job_pages.show_job),
    WebPage(path="/runs/{id}", template="run.html", call=run_pages.show_run),
    *(WebPage(path=f"/jobs/{{id}}/{name}", call=values.show_value) for name in values.NAMES),
    WebPage(path="/jobs/cancel", template="bulk.html", call=bulk_pages.preview_cancel, scope="operate"),
    WebPage(path="/jobs/requeue", template="bulk.html", call=bulk_pages.preview_requeue, scope="operate"),
    WebPage(
        path="/dead-letters/requeue", template="bulk.html", call=bulk_pages.preview_dead_letters, scope="operate"
    ),
    WebPage(path="/lifecycles/{name}", template="lifecycle.html", call=system_pages.show_lifecycle),
    WebPage(path="/search", template="error.html", call=system_pages.find),
    WebPage(path="/me", template="me.html", call=system_pages.show_me, scope=None),
)  # fmt: skip
OF_JOB = {
    "cancel": ("reason", "hard"), "requeue": ("reason",), "rerun": ("reason", "step"), "approve": ("comment",),
    "reject": ("comment",), "pause": ("reason", "until"), "unpause": ("reason",), "run-now": ("reason",),
}  # fmt: skip
AGAIN = ("requeue", "rerun")
DECIDE = ("word", "comment")
PARTS = ("title", "nav", "main")  # elements of a page that change while it is open
ACTIONS = (
    *(
        Action(
            path=f"/{kind}/{{id}}/{verb}", operation=f"/v1/jobs/{{id}}/{verb}", page=f"/{kind}/{{id}}", fields=fields,
            leads_to_new=verb in AGAIN,
        )
        for kind in ("jobs", "runs")
        for verb, fields in OF_JOB.items()
    ),
    *(
        Action(path=f"/{kind}/{{id}}/decide", operation="/v1/inbox/{id}/decide", page=f"/{kind}/{{id}}", fields=DECIDE)
        for kind in ("jobs", "runs")
    ),
    *(
        Action(path=f"/inbox/{{id}}/{verb}", operation=f"/v1/inbox/{{id}}/{verb}", page="/inbox", fields=fields)
        for verb, fields in {"approve": ("comment",), "reject": ("comment",), "decide": DECIDE}.items()
    ),
    *(
        Action(path=f"/queues/{verb}", operation=f"/v1/{verb}", page="/queues", fields=("queue", "reason", "until"))
        for verb in ("pause", "unpause")
    ),
    Action(path="/workers/{id}/drain", operation="/v1/workers/{id}/drain", page="/workers"),
    Action(path="/jobs/{id}/drain", operation="/v1/workers/{id}/drain", page="/jobs/{id}"),
    Action(path="/jobs/{id}/skip", operation="/v1/tasks/{id}/skip", page="/jobs/{id}"),
)  # fmt: skip


def make_routes(
    server: ServerState, pipeline: RequestPipeline, operations: Sequence[Operation], public: PublicUrl | None = None
) -> list[HTTPRouteHandler]:
    """Returns the routes of all pages, their actions, signing in and out, and the files that they load."""
    pages = collect_pages(server.app.registry)
    site = Site(server, pipeline, operations, pages, ACTIONS, public)
    return [
        *(make_route("GET", f"{UI}{page.path}", partial(site.answer, page)) for page in pages),
        *(make_route("POST", f"{UI}{action.path}", partial(site.act, action)) for action in site.actions),
        make_route("POST", f"{UI}/start/form", partial(start_job, site)),
        make_route("POST", f"{UI}/jobs/{{id}}/bury", partial(bury_job, site)),
        *(make_route("POST", f"{UI}{verb.page}", partial(confirm_many, site, verb)) for verb in bulk_pages.VERBS),
        make_route("GET", f"{UI}/live", partial(stream_changes, site)),
        make_route("GET", f"{UI}/login", partial(show_sign_in, site)),
        make_route("POST", f"{UI}/login", partial(sign_in, site)),
        make_route("POST", f"{UI}/logout", partial(sign_out, site)),
        make_route("GET", f"{UI}/enter/{{token}}", partial(enter, site)),
        make_route("GET", f"{UI}/static/{{file}}", send_file),
        make_route("GET", "/", partial(lead_to_pages, site)),
    ]


def collect_pages(registry: Registry) -> tuple[WebPage, ...]:
    """Returns our pages and those that plugins register, which bring the actions of their buttons along."""
    return (*PAGES, *(page for place in registry.pages for page in load_part(place)))


def make_route(
    method: str, path: str, call: Callable[[HttpRequest], Awaitable[Response[Any]]]
) -> HTTPRouteHandler:  # fmt: skip
    """Makes a route of the pages."""

    async def answer(request: HttpRequest) -> Response[Any]:  # the name by which Litestar knows the argument
        return await call(request)

    name = f"{method.lower()}_{path.replace('/', '_').replace('{', '').replace('}', '')}"
    return HTTPRouteHandler(path.replace("}", ":str}"), http_method=method, name=name)(answer)  # type: ignore[arg-type]


async def lead_to_pages(site: Site, http_request: HttpRequest) -> Response[Any]:
    """Leads from the root to the first page."""
    return finish(redirect(f"{site.prefix}{UI}/"), http_request, "/", read_loop_time(), None)


async def send_file(http_request: HttpRequest) -> Response[Any]:
    """Sends a file that pages load. It may be kept for an hour."""
    name = str(http_request.path_params["file"])
    files = {file.name: file for file in (HERE / "static").iterdir()}
    if name not in files:
        return Response("there is no such file", media_type="text/plain", status_code=404, headers=HEADERS)
    media = mimetypes.guess_type(name)[0] or "application/octet-stream"
    headers = {**HEADERS, "Cache-Control": "public, max-age=3600"}
    return Response(files[name].read_bytes(), media_type=media, headers=headers)


# What a page that is open is told.


async def stream_changes(site: Site, http_request: HttpRequest) -> Response[Any]:
    """Sends a page anew when something has happened, at most about once a second, until it tells of what has ended."""
    began, session = read_loop_time(), None
    try:
        site.check_place(http_request)
        session = await site.find_session(http_request)
        if session is None:
            raise ApiError(401, "the session has ended; sign in again")
        query = dict(read_pairs(http_request))
        path, _, text = query.pop("page", "/").partition("?")
        page, parameters = site.find_page(path)
        show = partial(site.show_change, page, session, parameters, parse_pairs(text))
        request = site.make_request(page, session, parameters, ())
        request.check_access = partial(check_session, site, http_request)  # type: ignore[method-assign]
        after = http_request.headers.get("last-event-id", "") or query.pop("after", "now")
        pieces = await request.open_stream("/v1/events", list({**query, "after": after}.items()))
        response: Response[Any] = Stream(send_changes(pieces, show, site.shared), media_type="text/event-stream")
        response.headers["X-Accel-Buffering"] = "no"
    except Exception as error:
        response = site.show_error(error, session)
    return finish(response, http_request, f"{UI}/live", began, session)


async def check_session(site: Site, http_request: HttpRequest) -> Any:
    """Raises ApiError once the session is over, or if nobody can tell."""
    try:
        session = await site.find_session(http_request)
    except StoreError as error:
        raise make_page_error(error) from None
    if session is None:
        raise ApiError(401, "the session is over")


async def send_changes(
    pieces: AsyncIterator[bytes], show: Callable[[int], Awaitable[str]], shared: SharedAnswers
) -> AsyncIterator[bytes]:
    """Sends the page once for all events that come together, at an instant that all who look have in common."""
    async for piece in pieces:
        if b"event: " not in piece:
            yield b": still here\n\n"
            continue
        try:
            text = cut_parts(await show(await shared.wait_for_instant()))
        except Exception:
            text = ""  # then the page asks for itself, and is told what is wrong
        cursor, data = piece.rpartition(b"id: ")[2].strip().decode(), text.replace("\n", "\ndata: ")
        yield f"id: {cursor}\nevent: change\ndata: {data}\n\n".encode()
        if text and "data-live=" not in text.partition("<main")[2].partition(">")[0]:
            return


def cut_parts(text: str) -> str:
    """Returns what differs from one answer to the next: the title, the menu and the page itself."""
    return "\n".join(text[text.index(f"<{tag}") :].partition(f"</{tag}>")[0] + f"</{tag}>" for tag in PARTS)


# Signing in and out.


async def show_sign_in(site: Site, http_request: HttpRequest) -> Response[Any]:
    """Shows the form that takes a key."""
    return await guard(site, http_request, "/login", partial(make_sign_in, site, http_request))


async def make_sign_in(site: Site, http_request: HttpRequest, refusal: str = "", status: int = 200) -> Response[Any]:
    """Makes the page to sign in, with the reason why the last try was refused."""
    wanted = dict(read_pairs(http_request)).get("next", "")
    text = render("login.html", **site.describe(None), next=wanted, refusal=refusal)
    return Response(text, media_type="text/html", status_code=status)


async def sign_in(site: Site, http_request: HttpRequest) -> Response[Any]:
    """Takes a key and gives a cookie that stands for it; leads to the page that was asked for."""

    async def take_key() -> Response[Any]:
        if not site.is_private(http_request):
            raise ApiError(403, PLAIN_HTTP)
        form = dict(await read_form(http_request))
        address = http_request.client.host if http_request.client else ""
        try:
            cookie = await site.sessions.sign_in(form.get("key", ""), address)
        except ApiError as refusal:
            response = await make_sign_in(site, http_request, str(refusal), refusal.status)
            response.headers.update(refusal.headers)
            return response
        response = redirect(f"{site.prefix}{choose_next(form.get('next', ''))}")
        response.cookies.append(site.make_cookie(http_request, cookie))
        return response

    return await guard(site, http_request, "/login", take_key)


def choose_next(wanted: str) -> str:
    """Returns the page to lead to: one of ours, never another site's."""
    parts = urlsplit(wanted)
    ours = wanted.startswith(f"{UI}/") and not parts.scheme and not parts.netloc and "\\" not in wanted
    return wanted if ours and wanted.isprintable() else f"{UI}/"


async def sign_out(site: Site, http_request: HttpRequest) -> Response[Any]:
    """Takes the cookie away."""

    async def forget() -> Response[Any]:
        await site.read_own_form(http_request)
        response = redirect(f"{site.prefix}{UI}/login")
        response.cookies.append(site.make_cookie(http_request, "", 0))
        return response

    return await guard(site, http_request, "/logout", forget)


async def enter(site: Site, http_request: HttpRequest) -> Response[Any]:
    """Signs in whoever has a link that `interlock ui` or `make run` printed; it is good once."""

    async def take_token() -> Response[Any]:
        if not site.is_private(http_request):
            raise ApiError(403, PLAIN_HTTP)
        cookie = await site.sessions.enter(str(http_request.path_params["token"]))
        if cookie is None:
            raise ApiError(401, "this link is over or was used before; `interlock ui` prints another one")
        response = redirect(f"{site.prefix}{UI}/")
        response.cookies.append(site.make_cookie(http_request, cookie))
        return response

    return await guard(site, http_request, "/enter/{token}", take_token)


async def guard(
    site: Site, http_request: HttpRequest, path: str, call: Callable[[], Awaitable[Response[Any]]]
) -> Response[Any]:
    """Returns what a call answers, or the page that says why it could not."""
    began = read_loop_time()
    try:
        site.check_place(http_request)
        response = await call()
    except Exception as error:
        response = site.show_error(error, None)
    return finish(response, http_request, f"{UI}{path}", began, None)


# Forms that need more than one request to the API.


async def start_job(site: Site, http_request: HttpRequest) -> Response[Any]:
    """Starts a job or a run with the arguments that were typed."""
    return await send_form(site, http_request, "/start/form", start_pages.start)


async def bury_job(site: Site, http_request: HttpRequest) -> Response[Any]:
    """Makes a job a dead letter."""

    async def bury(request: PageRequest, form: dict[str, str]) -> str:
        job = await request.ask("GET", "/v1/jobs/{id}", parameters=request.path)
        require_scope(request.caller, Bury.scope)
        reason = form.get("reason", "")
        if reason not in REASONS:
            raise ApiError(400, f"reason = {reason} is not allowed; allowed are {', '.join(REASONS)}")
        await request.send(Bury(unit=parse_unit_id(job["id"]), reason=reason))
        return f"/jobs/{job['id']}"

    return await send_form(site, http_request, "/jobs/{id}", bury)


async def confirm_many(site: Site, verb: bulk_pages.BulkVerb, http_request: HttpRequest) -> Response[Any]:
    """Cancels or requeues many jobs that were shown and are confirmed."""
    return await send_form(site, http_request, verb.page, partial(bulk_pages.confirm, verb))


async def send_form(
    site: Site, http_request: HttpRequest, path: str,
    call: Callable[[PageRequest, dict[str, str]], Awaitable[str | Response[Any]]],
) -> Response[Any]:  # fmt: skip
    """Sends a form of a session, and shows what the call answers, or leads there; a refusal is shown above the form."""
    began, session = read_loop_time(), None
    try:
        site.check_place(http_request)
        session, form = await site.read_own_form(http_request)
        parameters = {name: str(value) for name, value in http_request.path_params.items()}
        request = PageRequest(site, session, path, parameters, ())
        try:
            answer = await call(request, form)
            response = redirect(f"{site.prefix}{UI}{answer}") if isinstance(answer, str) else answer
        except (ApiError, InterlockError) as error:
            refusal = make_page_error(error)
            if refusal.status in (404, 500):
                raise
            fields = [(name, value) for name, value in form.items() if not name.startswith(("form_", "confirm"))]
            response = await site.show(site.pages[path], session, parameters, fields, refusal)
    except Exception as error:
        response = site.show_error(error, session)
    return finish(response, http_request, f"{UI}{path}", began, session)
