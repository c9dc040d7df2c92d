"""Artifacts, logs and blobs over HTTP: bytes with ranges, and logs as they are written."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Meta

from interlock.blobs.store import BlobStore
from interlock.client.durations import format_time
from interlock.client.http_codec import NUMBER_MAX
from interlock.kernel.blobs import check_digest
from interlock.kernel.commands import AddArtifact, AddBlob, AppendLog, Emit, EvidenceStatus, LeaseRef, LogEntry
from interlock.kernel.errors import Unknown
from interlock.plugins.evidence.log_feed import LogFeed, LogPosition, follow_part, read_new_parts
from interlock.plugins.evidence.queries import (
    ArtifactInfo,
    LogInfo,
    LogPart,
    has_blob,
    list_artifacts,
    list_logs,
    read_log_part,
)
from interlock.server.auth import read_loop_time
from interlock.server.errors import STALE_LEASE, ApiError
from interlock.server.leases import LeaseRequest
from interlock.server.operations import BytesReply, Operation, Reply, Request, ServerState
from interlock.server.request_schemas import Name, Short, Strict
from interlock.server.sse import CHECK_SECONDS, PING, PING_SECONDS, EventStream, wants_stream

BLOB_MAX = 1 << 30  # bytes of one upload
PART = 1024 * 1024  # bytes of a log that are read together
OCTETS, PLAIN = "application/octet-stream", "text/plain"  # of text, Litestar says that it is UTF-8
RANGES = "allowed is one range of bytes, as in bytes=0-99, bytes=100- or bytes=-100"
FEEDS: "weakref.WeakKeyDictionary[ServerState, LogFeed]" = weakref.WeakKeyDictionary()
Attempt = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class AttemptQuery(Strict, frozen=True, kw_only=True):
    """The attempt; by default the newest that has any."""

    attempt: Attempt | None = None


class ArtifactItemResponse(msgspec.Struct, frozen=True):
    """An artifact of a job."""

    name: str
    attempt: int
    fence: int
    at: str | None
    late: bool  # it came after the end of its lease
    media: str
    digest: str
    length: int  # bytes


class ArtifactListResponse(msgspec.Struct, frozen=True):
    """The artifacts of a job, by attempt and name."""

    artifacts: list[ArtifactItemResponse]


class LogListResponse(msgspec.Struct, frozen=True):
    """The logs of a job, by attempt."""

    logs: list[LogInfo]


class EvidenceResponse(msgspec.Struct, frozen=True):
    """What was added: to which attempt, whether it was late, and how many bytes of the log are kept."""

    attempt: int
    late: bool
    length: int


class BlobResponse(msgspec.Struct, frozen=True):
    """A blob that was written."""

    digest: str
    length: int


class ArtifactRequest(LeaseRequest, frozen=True, kw_only=True):
    """A blob to keep as an artifact of the attempt, under a name."""

    name: Name
    digest: Name
    media: Name = OCTETS


class LogRequest(LeaseRequest, frozen=True, kw_only=True):
    """Text for the log, or bytes in base64. `start` is how many bytes were sent before under this lease."""

    start: Annotated[int, Meta(ge=0, le=2**53)]
    text: str = ""
    data: bytes = b""
    emitted: bool = False  # it is void if the work is done again, unless `step` is recorded under this lease
    step: Short = ""


class ByteRange(NamedTuple):
    """The bytes from `start` up to `end`, of `length` in all; whole if no range was asked for."""

    start: int
    end: int
    length: int
    whole: bool

    @property
    def headers(self) -> dict[str, str]:
        known = {"Accept-Ranges": "bytes"}
        return known if self.whole else {**known, "Content-Range": f"bytes {self.start}-{self.end - 1}/{self.length}"}


def parse_range(request: Request, length: int) -> ByteRange:
    """The bytes that a request asks for.

    Raises:
        ApiError: 400 for what is no range, 416 for one in which there are no bytes.
    """
    text = request.headers.get("range", "")
    if not text:
        return ByteRange(0, length, length, whole=True)
    unit, _, numbers = text.partition("=")
    first, dash, last = numbers.strip().partition("-")
    digits = [part for part in (first, last) if part]
    if (
        unit.strip() != "bytes"
        or not dash
        or not digits
        or not all(part.isdecimal() and len(part) < 16 for part in digits)
    ):
        raise ApiError(400, f"Range = {text[:40]!r} is not allowed; {RANGES}")
    start = int(first) if first else max(length - int(last), 0)
    end = min(int(last) + 1, length) if first and last else length
    if first and last and int(last) < int(first):
        raise ApiError(400, f"Range = {text[:40]!r} is not allowed; {RANGES}")
    if start >= end:
        headers = {"Content-Range": f"bytes */{length}"}
        raise ApiError(416, f"there are {length:,} bytes, and none in this range", headers=headers)
    return ByteRange(start, end, length, whole=False)


async def read_apart(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yields pieces, each read in a thread."""
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece


def find_blobs(request: Request) -> BlobStore:
    """Where this server keeps blobs.

    Raises:
        NoBlobs: this server has no place for blobs.
    """
    return request.server.app.engine.find_blobs()


# Blobs.


async def send_blob(request: Request) -> BlobResponse:
    """Writes the bytes of a request, if they have the digest that the path names."""
    digest, tenant = check_digest(request.path["digest"]), request.caller.tenant
    assert request.pieces is not None
    writer = await asyncio.to_thread(find_blobs(request).open_writer, tenant)
    try:
        async for piece in request.pieces:
            await asyncio.to_thread(writer.add, piece)
        blob = await asyncio.to_thread(writer.finish, digest)
    finally:
        writer.cancel()
    await request.server.send(AddBlob(tenant=tenant, actor=request.caller.name, digest=blob.digest, length=blob.length))
    return BlobResponse(blob.digest, blob.length)


async def read_blob(request: Request) -> BytesReply:
    """Answers the bytes of a blob of the caller's tenant."""
    digest = check_digest(request.path["digest"])
    if not await request.read(has_blob, digest):
        raise Unknown(digest)
    return answer_blob(request, digest, OCTETS, {})


def answer_blob(request: Request, digest: str, media: str, headers: dict[str, str]) -> BytesReply:
    """The bytes of a blob that the caller may read.

    Raises:
        Unknown: there is none.
    """
    blobs, tenant = find_blobs(request), request.caller.tenant
    length = blobs.find_length(tenant, digest)
    if length is None:
        raise Unknown(digest)
    wanted = parse_range(request, length)
    pieces = read_apart(blobs.read(tenant, digest, wanted.start, wanted.end))
    size = {"Content-Length": str(wanted.end - wanted.start), "ETag": f'"{digest}"'}
    return BytesReply(pieces, media, {**headers, **size, **wanted.headers}, 200 if wanted.whole else 206)


# Artifacts.


async def show_artifacts(request: Request) -> ArtifactListResponse:
    """Lists the artifacts of a job."""
    return ArtifactListResponse(
        [make_item(row) for row in await request.read(list_artifacts, await request.find_unit())]
    )


def make_item(row: ArtifactInfo) -> ArtifactItemResponse:
    """Makes an artifact of a list."""
    at = format_time(row.at)
    return ArtifactItemResponse(row.name, row.attempt, row.fence, at, row.late, row.media, row.digest, row.length)


async def read_artifact(request: Request) -> BytesReply:
    """The bytes of an artifact, of the newest attempt that has one of that name, or of the one that is asked for."""
    query: AttemptQuery = request.query
    name, rows = request.path["name"], await request.read(list_artifacts, await request.find_unit())
    rows = [row for row in rows if row.name == name and query.attempt in (None, row.attempt)]
    if not rows:
        raise Unknown(name)
    row = rows[-1]
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    if row.value is None:
        return answer_blob(request, row.digest, row.media, headers)
    data = row.value.encode()
    wanted = parse_range(request, len(data))
    pieces = read_apart(iter([data[wanted.start : wanted.end]]))
    return BytesReply(pieces, row.media, {**headers, **wanted.headers}, 200 if wanted.whole else 206)


async def add_artifact(request: Request) -> EvidenceResponse:
    """Keeps a blob as an artifact of the attempt."""
    body: ArtifactRequest = request.body
    command = AddArtifact(held=await read_lease(request), name=body.name, digest=body.digest, media=body.media)
    return make_evidence(await request.send(command))


async def read_lease(request: Request) -> LeaseRef:
    """The lease that a message names.

    Raises:
        Unknown: a job that is not there.
    """
    body: LeaseRequest = request.body
    return LeaseRef(unit=await request.find_unit(), fence=body.fence, lease=body.lease)


def make_evidence(status: EvidenceStatus) -> EvidenceResponse:
    """What was added.

    Raises:
        ApiError: 409, for what was not taken.
    """
    if status.accepted:
        return EvidenceResponse(status.attempt, status.late, status.length)
    if "LEASE" in status.why:
        text = f"nothing is accepted under this lease ({status.why}): stop this work, and claim again"
        raise ApiError(409, text, code=STALE_LEASE, why=status.why)
    raise ApiError(409, status.why, length=status.length)


# Logs.


async def append_log(request: Request) -> EvidenceResponse:
    """Adds text or bytes to the log of the attempt."""
    body: LogRequest = request.body
    if bool(body.text) == bool(body.data):
        raise ApiError(400, "give text or data, one of them, and not empty")
    data = body.data or body.text.encode(errors="backslashreplace")
    emits = (Emit(body.start, body.start + len(data), body.step),) if body.emitted else ()
    entry = LogEntry(await read_lease(request), body.start, data, emits)
    (status,) = await request.send(AppendLog(entries=(entry,)))
    return make_evidence(status)


async def show_logs(request: Request) -> LogListResponse:
    """Lists the logs of a job, by attempt."""
    return LogListResponse(await request.read(list_logs, await request.find_unit()))


async def read_log(request: Request) -> Any:
    """Answers the log of a job, or follows it."""
    return await reply_log(request, await request.find_unit())


async def read_log_of_run(request: Request) -> Any:
    """Answers the log of a run, or follows it."""
    return await reply_log(request, await request.find_run())


async def reply_log(request: Request, unit: int) -> Any:
    """The bytes of a log, all of them or a range, or as they are written."""
    query: AttemptQuery = request.query
    if wants_stream(request):
        return await open_log_stream(request, unit, query.attempt)
    first: LogPart = await request.read(read_log_part, unit, query.attempt, 0, 1)
    wanted = parse_range(request, first.length)
    size = max(min(PART, wanted.end - wanted.start), 1)
    part: LogPart = await request.read(read_log_part, unit, first.attempt, wanted.start, size)
    if not wanted.whole:  # what was dropped from the middle ends a range
        wanted = wanted._replace(start=part.start, end=max(await find_end(request, unit, part, wanted.end), part.start))
        if wanted.start >= wanted.end:
            raise ApiError(
                416, "the bytes of this range were dropped", headers={"Content-Range": f"bytes */{wanted.length}"}
            )
    headers = {**wanted.headers, "X-Log-Attempt": str(part.attempt)}
    pieces = read_log_pieces(request, unit, part, wanted)
    return BytesReply(pieces, PLAIN, headers, 200 if wanted.whole else 206)


async def find_end(request: Request, unit: int, part: LogPart, end: int) -> int:
    """Where a range of a log ends: before the gap, if there is one in it."""
    (log,) = [log for log in await request.read(list_logs, unit) if log.attempt == part.attempt]
    return log.gap_start if part.start < log.gap_start < end else end


async def read_log_pieces(request: Request, unit: int, part: LogPart, wanted: ByteRange) -> AsyncIterator[bytes]:
    """The bytes of a log; of a whole one, a line stands for what was dropped."""
    position = wanted.start
    while position < wanted.end:
        if part.start > position and wanted.whole:
            yield f"\n[{part.start - position} bytes were dropped here]\n".encode()
        data = part.data[: wanted.end - part.start]
        if not data:
            return
        yield data
        position = part.start + len(data)
        if position < wanted.end:
            part = await request.read(read_log_part, unit, part.attempt, position, min(PART, wanted.end - position))


async def open_log_stream(request: Request, unit: int, attempt: int | None) -> Any:
    """A stream of the caller's key; whoever has read the end is told to ask no more (204)."""
    position = parse_position(request, LogPosition(attempt or 1, 0))
    new = await request.read(read_new_parts, unit, position)
    if new.ended:
        return Reply("", 204)
    leave = request.server.streams.open_stream(request.caller.key)
    pieces = stream_log(request, unit, position, leave)
    weakref.finalize(pieces, leave)  # a generator that was never asked for a piece runs no `finally`
    return EventStream(pieces)


def parse_position(request: Request, default: LogPosition) -> LogPosition:
    """How far the caller has read.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    text = request.headers.get("last-event-id", "")
    if not text:
        return default
    attempt, _, offset = text.partition(".")
    if not all(part.isascii() and part.isdecimal() and int(part) <= NUMBER_MAX for part in (attempt, offset)):
        raise ApiError(400, "Last-Event-ID is not allowed; allowed is the id of an event of this stream, as in 1.4096")
    return LogPosition(int(attempt), int(offset))


async def stream_log(
    request: Request, unit: int, position: LogPosition, leave: Callable[[], None]
) -> AsyncIterator[bytes]:
    """Everything behind a position, until the job has ended, the key is void or the server ends."""
    feed = FEEDS.setdefault(request.server, LogFeed(request.server.read))
    sent_at = read_loop_time()
    try:
        while not request.server.closing:
            new = await request.read(read_new_parts, unit, position)
            for part in new.parts:
                position = follow_part(position, part)
                yield encode_part(part, position)
            if new.ended:
                yield b"event: end\ndata: {}\n\n"
                return
            if new.parts:
                continue
            with feed.listen(request.caller.tenant, unit, position) as follower:
                missed = False
                while not (request.server.closing or follower.ended or follower.behind or missed):
                    for part in await follower.wait(CHECK_SECONDS):
                        if (part.attempt, part.start) != position and (part.attempt, part.start) != (
                            position.attempt + 1,
                            0,
                        ):
                            missed = True
                            break
                        position, sent_at = follow_part(position, part), read_loop_time()
                        yield encode_part(part, position)
                    if read_loop_time() - sent_at > PING_SECONDS:
                        sent_at = read_loop_time()
                        yield PING
                    if not await request.is_still_allowed():
                        return
    finally:
        leave()


def encode_part(part: LogPart, position: LogPosition) -> bytes:
    """An event: bytes that are no text are shown as such, also where an event ends within a letter; or a mark."""
    if part.void:
        mark = msgspec.json.encode({"attempt": part.attempt, "void": part.void}).decode()
        return f"id: {position.attempt}.{position.offset}\nevent: void\ndata: {mark}\n\n".encode()
    text = part.data.decode(errors="backslashreplace")
    data = msgspec.json.encode({"attempt": part.attempt, "start": part.start, "text": text}).decode()
    return f"id: {position.attempt}.{position.offset}\nevent: log\ndata: {data}\n\n".encode()


JOB = "/v1/jobs/{id}"
LOG_POSITION = r"^[0-9]{1,9}\.[0-9]{1,15}$"
ROUTES = (
    Operation(
        method="GET", path=f"{JOB}/artifacts", scope="read", summary="List the artifacts of a job", call=show_artifacts,
        response=ArtifactListResponse,
    ),
    Operation(
        method="GET", path=f"{JOB}/artifacts/{{name}}", scope="read", summary="Download an artifact", ranges=True,
        call=read_artifact, query=AttemptQuery, response=bytes, media=OCTETS, other_statuses=(206,),
    ),
    Operation(
        method="POST", path=f"{JOB}/artifacts", scope="worker", summary="Keep a blob as an artifact, under a lease",
        call=add_artifact, body=ArtifactRequest, response=EvidenceResponse, keyed=False, counted=False,
    ),
    Operation(
        method="GET", path=f"{JOB}/logs", scope="read", summary="List the logs of a job, by attempt", call=show_logs,
        response=LogListResponse,
    ),
    Operation(
        method="GET", path=f"{JOB}/log", scope="read", summary="Read the log of a job, or follow it", call=read_log,
        query=AttemptQuery, response=bytes, media=PLAIN, ranges=True, streams=True, other_statuses=(204, 206),
        event_id=LOG_POSITION,
    ),
    Operation(
        method="GET", path="/v1/runs/{id}/log", scope="read", summary="Read the log of a run, or follow it",
        call=read_log_of_run, query=AttemptQuery, response=bytes, media=PLAIN, ranges=True, streams=True,
        other_statuses=(204, 206), event_id=LOG_POSITION,
    ),
    Operation(
        method="POST", path=f"{JOB}/log", scope="worker", summary="Add to the log of a job, under a lease",
        call=append_log, body=LogRequest, response=EvidenceResponse, keyed=False, counted=False,
    ),
    *(
        operation
        for path, read_scope, write_scope in (
            ("/v1/blobs/{digest}", "read", "submit"), ("/v1/worker/blobs/{digest}", "worker", "worker"),
        )
        for operation in (
            Operation(
                method="GET", path=path, scope=read_scope, summary="Read a blob by its digest", call=read_blob,
                response=bytes, media=OCTETS, ranges=True, other_statuses=(206,),
            ),
            Operation(
                method="POST", path=path, scope=write_scope, summary="Send the bytes of a blob", call=send_blob,
                response=BlobResponse, takes_bytes=BLOB_MAX, keyed=False, counted=write_scope != "worker",
            ),
        )
    ),
)  # fmt: skip
