"""Large values: what is over 256 KiB is stored as a blob, and read back, without the program noticing.

An input, a result, or what a handler records (results of steps and effects, checkpoints) that is that large is written
as a blob before the command that has it is sent, and the command has a reference instead. Whoever reads the row gets
the text of the blob. Where there is no place for blobs, everything stays in the row, as far as it fits there.
"""

import asyncio
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from interlock.blobs.store import PIECE, read_value, write_pieces
from interlock.kernel.blobs import LARGE, BlobRef, format_reference, is_large, parse_reference
from interlock.kernel.commands import RECORDED_VALUES, AddBlob, Command, Finish, Record, Submit
from interlock.kernel.errors import InterlockError, NoBlobs, Unavailable

if TYPE_CHECKING:
    from interlock.client.app import App

A = TypeVar("A")
RESULT = attrgetter("result")
FITS = 1_000_000  # bytes of a value that a request can have without a blob


def keep_pieces(app: "App", tenant: int, pieces: Iterable[bytes], *, worker: bool = False) -> BlobRef:
    """Writes bytes as a blob that the database knows of; what nothing uses is deleted after a day.

    `worker`: with the rights of a worker, and not of somebody who submits; it matters to the key of a server.

    Raises:
        NoBlobs: there is no place for blobs.
    """
    blob = write_pieces(app.engine.find_blobs(worker=worker), tenant, pieces)
    if not app.engine.far:  # a server does it itself
        app.engine.send(AddBlob(tenant=tenant, digest=blob.digest, length=blob.length))
    return blob


def keep_value(app: "App", tenant: int, text: str, *, worker: bool) -> str:
    """Returns what stands in a command for a JSON text: itself, or the reference to a blob that has it.

    A result is not lost because it cannot be kept as a blob: then it is sent as it is, and fits or not.

    Raises:
        InterlockError: an argument cannot be kept.
    """
    if not is_large(text):
        return text
    data = text.encode()
    try:
        pieces = (data[place : place + PIECE] for place in range(0, len(data), PIECE))
        return format_reference(keep_pieces(app, tenant, pieces, worker=worker))
    except Unavailable:
        raise
    except InterlockError as error:
        fits = isinstance(error, NoBlobs) and (len(data) <= FITS or not app.engine.far)
        if worker or fits:
            return text
        raise


def has_large_value(command: Command[Any]) -> bool:
    """Whether a command has an input, a result or a recorded value that is kept as a blob."""
    if isinstance(command, Submit):  # a character has at most four bytes, so most commands hold none by their lengths
        return any(len(work.input) > LARGE // 4 and is_large(work.input) for work in command.work)
    if isinstance(command, Record):
        return command.kind in RECORDED_VALUES and is_large(command.payload)
    if isinstance(command, Finish):
        longest = max(map(len, map(RESULT, command.outcomes)), default=0)
        return longest > LARGE // 4 and any(is_large(outcome.result) for outcome in command.outcomes)
    return False


def pack(app: "App", command: Command[A]) -> Command[A]:
    """Returns the same command with references for large values, which are blobs from now on."""
    return pack_values(app, command) if has_large_value(command) else command


def pack_values(app: "App", command: Any) -> Any:
    """Replaces large values of a command by references to blobs."""
    replace, tenant = msgspec.structs.replace, command.tenant
    if isinstance(command, Submit):
        work = (replace(each, input=keep_value(app, tenant, each.input, worker=False)) for each in command.work)
        return replace(command, work=tuple(work))
    if isinstance(command, Record):
        return replace(command, payload=keep_value(app, tenant, command.payload, worker=True))
    outcomes = (replace(each, result=keep_value(app, tenant, each.result, worker=True)) for each in command.outcomes)
    return replace(command, outcomes=tuple(outcomes))


async def pack_apart(app: "App", command: Command[A]) -> Command[A]:
    """Does the same as `pack` for a command that has large values, and lets others run meanwhile."""
    return await asyncio.to_thread(pack_values, app, command)


def unpack(app: "App", text: str, *, worker: bool = False) -> str:
    """Returns the JSON text that a row stands for: itself, or that of the blob that it names.

    Raises:
        NoBlobs: it names a blob, and this process knows of no place for blobs.
    """
    if parse_reference(text) is None:
        return text
    return read_value(app.engine.find_blobs(worker=worker), app.tenant, text)
