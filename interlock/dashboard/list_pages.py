"""Lists of jobs and runs: filters, the equivalent command, and rows that can be selected."""

import shlex
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from interlock.dashboard.pages import PageRequest
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Category
from interlock.server.errors import ApiError, make_api_error

FILTERS = ("state", "category", "lifecycle", "task", "queue", "key", "correlation", "error", "parent", "worker")
# The categories that are one click away, by the words that people use for them.
QUICK = {
    "": "all", Category.READY: "waiting", Category.ACTIVE: "at work", Category.GATE: "needs a person",
    Category.SUCCESS: "succeeded", Category.FAILURE: "failures", Category.DEAD: "dead letters",
    Category.CANCELLED: "cancelled",
}  # fmt: skip
ROWS = "25"
HERE = "http://127.0.0.1:8000"  # where `interlock up` serves
PLACES = ("after", "limit")  # fields of the URL that say which page of a list is shown
Pairs = Sequence[tuple[str, str]]


async def list_jobs(request: PageRequest) -> dict[str, Any]:
    """Lists jobs, the newest first; without a filter, only what is part of nothing else."""
    return await list_work(request, "/v1/jobs", "jobs", "Jobs")


async def list_runs(request: PageRequest) -> dict[str, Any]:
    """Lists runs, the newest first."""
    return await list_work(request, "/v1/runs", "runs", "Runs")


async def list_work(request: PageRequest, operation: str, name: str, title: str) -> dict[str, Any]:
    """Lists jobs or runs that fit the filter in the URL. A wrong word is told what is allowed, in place."""
    pairs = request.pairs
    filtered = [(field, value) for field, value in pairs if field not in PLACES]
    is_plain = name == "jobs" and not filtered
    wanted = [*pairs, ("top", "true")] if is_plain else list(pairs)
    wrong = ""
    page: dict[str, Any] = {name: [], "next": None, "count": None, "looked_until": None}
    try:
        page = await request.ask("GET", operation, [*wanted, *([] if "limit" in request.query else [("limit", ROWS)])])
    except (ApiError, InterlockError) as error:
        answer = make_api_error(error, by_id=False)
        if answer.status != 400:
            raise
        wrong = str(answer)
    current = request.query.get("category", "")
    return {
        "title": title, "jobs": page[name], "next": page["next"], "count": page["count"], "wrong": wrong,
        "looked_until": page["looked_until"],
        "chips": list_chips(pairs), "filters": [field for field in FILTERS if field not in request.query],
        "quick": [(label, change(pairs, category), current == category) for category, label in QUICK.items()],
        "is_plain": is_plain, "has_all": name == "jobs" and not wrong, "filtered": filtered or wanted[-1:] * is_plain,
        "commands": make_commands(request, operation, [pair for pair in wanted if pair[0] not in PLACES]),
        "count_link": f"?{urlencode([*filtered, ('count', 'true')])}",
    }  # fmt: skip


def list_chips(pairs: Pairs) -> list[tuple[str, str, str]]:
    """Returns what a list is filtered by, each with the query of the list without it."""
    kept = [pair for pair in pairs if pair[0] not in PLACES]
    return [
        (name, value, f"?{urlencode([pair for place, pair in enumerate(kept) if place != number])}")
        for number, (name, value) in enumerate(kept) if name != "count"
    ]  # fmt: skip


def change(pairs: Pairs, category: str) -> str:
    """Returns the query of a list with another category, or with none, from its first page on."""
    kept = [pair for pair in pairs if pair[0] not in ("category", "state", *PLACES)]
    return f"?{urlencode([*kept, ('category', category)] if category else kept)}"


# The same list as a command that can be pasted.


def make_commands(request: PageRequest, operation: str, pairs: Pairs) -> list[tuple[str, str]]:
    """Returns the list as a command of the command line, where it has one, and as a request to the API."""
    base = HERE if request.site.public is None else f"{request.site.public.origin}{request.site.public.prefix}"
    commands = [("Request", make_curl(f"{base}{operation}", pairs))]
    named = [(name, value) for name, value in pairs if name in FILTERS]
    return [("Command line", make_command("interlock list", named)), *commands] if "jobs" in operation else commands


def make_command(command: str, pairs: Pairs) -> str:
    """Returns a command with an option for each pair; no value can end its option or begin another word."""
    return " ".join([command, *(quote_word(f"--{name}={value}") for name, value in pairs)])


def make_curl(url: str, pairs: Pairs) -> str:
    """Returns a request as a command; the key is read from $KEY, so that it is in no history."""
    fields = [f"--data-urlencode {quote_word(f'{name}={value}')}" for name, value in pairs]
    return " ".join(["curl -sG", quote_word(url), '-H "Authorization: Bearer $KEY"', *fields])


def quote_word(text: str) -> str:
    """Returns a text as one word of a shell. What cannot be seen is written out, so that what is shown is what runs."""
    if text.isprintable():
        return shlex.quote(text)
    parts = (
        f"\\{char}" if char in "\\'" else char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in
        char.encode("utf-8", "surrogatepass"))
        for char in text
    )  # fmt: skip
    return f"$'{''.join(parts)}'"
