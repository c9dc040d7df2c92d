"""Show inputs and results: small ones coloured, large ones folded with a link to the whole."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from interlock.client.json_views import make_job_detail
from interlock.dashboard.pages import PageRequest
from interlock.kernel.blobs import parse_reference
from interlock.kernel.rows import Note
from interlock.server.errors import ApiError
from interlock.store.connection import Connection
from interlock.store.queries.large_values import read_large_values
from interlock.store.queries.views import find_open_gates, needs_of, view

FOLDED_FROM = 64 * 1024  # characters of a value; longer ones are folded
BEGINNING = 2_000  # characters that are shown of what is folded
NAMES = ("input", "result")


class FoldedValue(NamedTuple):
    """A value that is too long for its page: how it begins, if that is at hand, and how long it is."""

    beginning: str
    length: int


def fold(text: str | None) -> FoldedValue | None:
    """Returns what is shown of a JSON text that is too long for a page; None for one that is not."""
    if text is None:
        return None
    if blob := parse_reference(text):
        return FoldedValue("", blob.length)
    return FoldedValue(text[:BEGINNING], len(text)) if len(text) > FOLDED_FROM else None


def read_folded_detail(
    connection: Connection, tenant: int, unit: int, notes: Sequence[Note]
) -> tuple[dict[str, Any], Mapping[str, FoldedValue]]:
    """Reads a job as the API tells it, without the values that are too long for a page, and how those begin.

    `notes` are those among which its tracebacks are.
    """
    rows = view(connection, tenant, unit)
    folded = {name: value for name in NAMES if (value := fold(getattr(rows.body, name)))}
    own = msgspec.structs.replace(rows, body=msgspec.structs.replace(rows.body, **dict.fromkeys(folded, "null")))
    needs, gates = needs_of(connection, tenant, unit), find_open_gates(connection, tenant, unit)
    detail = make_job_detail(own, needs, gates, notes)
    return msgspec.to_builtins(detail), folded


async def show_value(request: PageRequest) -> dict[str, str]:
    """Shows the whole input or result of a job as it is kept.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    name = request.page.rpartition("/")[2]
    text = await request.read(read_value_text, await request.find_unit(), name)
    if text is None:
        raise ApiError(404, f"it has no {name} yet")
    return {"text": text}


def read_value_text(connection: Connection, tenant: int, unit: int, name: str) -> str | None:
    """Reads the whole input or result of a job."""
    text: str | None = getattr(read_large_values(connection, view(connection, tenant, unit)).body, name)
    return text
