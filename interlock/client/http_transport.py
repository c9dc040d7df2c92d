"""The HTTP transport of a client: it retries where that is safe, and raises our errors."""

import asyncio
from collections.abc import AsyncIterator
from typing import IO

import httpx
import msgspec

from interlock.blobs.store import PIECE
from interlock.client.http_codec import COMMANDS_PATH, CommandError, ErrorResponse, decode_error
from interlock.kernel.errors import Denied, InterlockError, LimitReached, TooSlow, Unavailable, Unknown

PAUSES = (0.05, 0.2, 0.5, 1.0)  # seconds before a request that got no response is sent again
TIMEOUT = httpx.Timeout(30.0, connect=5.0, pool=None)
LIMITS = httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=3.0)
JSON = {"Content-Type": "application/json"}
OCTETS = {"Content-Type": "application/octet-stream"}
SERVER_ERROR = 500  # and above: the server, or a proxy in front of it, cannot answer now
CLASS_BY_CODE = {
    "NOT_WANTED": "NotWanted", "STALE_LEASE": "Stale", "INVALID_STATE": "Refused", "TOO_SLOW": "TooSlow",
    "NO_BLOBS": "NoBlobs", "CONTRACT_MISMATCH": "NotWanted",
}  # fmt: skip
CLASS_BY_STATUS: dict[int, type[InterlockError]] = {
    401: Denied,
    403: Denied,
    404: Unknown,
    429: LimitReached,
    503: Unavailable,
}


class RequestRejected(InterlockError):
    """The server did not take a request as it is: nothing of it was carried out."""


class RequestTooLarge(InterlockError):
    """A command is larger than one request may be."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(
            f"this is {size:,} bytes, and a server takes at most {size_max:,} in one request: send it in parts, or "
            "keep large data elsewhere and pass where it is"
        )


class HttpTransport:
    """The HTTP connections to one server, with the API key that every request carries."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        headers = {"Authorization": f"Bearer {key}"}
        secure = url.startswith("https:")  # reading all certificates takes longer than a request
        self.http = httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT, limits=LIMITS, verify=secure)

    async def check_ready(self) -> None:
        """Returns if a server is there and ready.

        Raises:
            Unavailable: there is none, or it is not ready.
            InterlockError: what answers is no Interlock server.
        """
        try:
            response = await self.http.get("/readyz")
        except httpx.TransportError as error:
            raise Unavailable(f"there is no server at {self.url}: {describe_transport_error(error)}") from None
        if response.status_code >= SERVER_ERROR:
            raise Unavailable(f"the server at {self.url} is not ready: {decode_response_error(response)}")
        if response.status_code != httpx.codes.OK:
            raise InterlockError(f"what answers at {self.url} is no Interlock server")

    async def post(self, path: str, body: bytes, *, changes: bool = True) -> bytes:
        """Sends a request, again for a while if there is no response, and returns the body of the response.

        `changes`: whether the request may change something; then a lost response leaves open whether it did.

        Raises:
            Unavailable: the server did not answer in time.
            InterlockError: the error that the server answered with.
        """
        unknown, why = False, ""
        for pause in (0.0, *PAUSES):
            await asyncio.sleep(pause)
            try:
                response = await self.http.post(path, content=body, headers=JSON)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                why = describe_transport_error(error)
            except httpx.TransportError as error:
                unknown, why = True, describe_transport_error(error)
            else:
                if response.status_code == httpx.codes.OK:
                    return response.content
                refusal = decode_response_error(response)
                if response.status_code < SERVER_ERROR or isinstance(refusal, TooSlow):
                    raise refusal
                unknown, why = unknown or not isinstance(refusal, Unavailable), str(refusal)
        if unknown and changes:
            raise Unavailable(
                f"the server at {self.url} did not answer ({why}); it is not known whether the request was "
                "carried out: check before you send it again"
            )
        raise Unavailable(f"the server at {self.url} does not answer: {why}; nothing was changed")

    async def upload(self, path: str, file: IO[bytes]) -> None:
        """Sends the bytes of a file, again if there is no response: they are named by their digest, and kept once.

        Raises:
            Unavailable: the server did not answer.
            InterlockError: the error that the server answered with.
        """
        why = ""
        for pause in (0.0, *PAUSES):
            await asyncio.sleep(pause)
            file.seek(0)
            try:
                response = await self.http.post(path, content=read_apart(file), headers=OCTETS)
            except httpx.TransportError as error:
                why = describe_transport_error(error)
                continue
            if response.status_code == httpx.codes.OK:
                return
            if response.status_code < SERVER_ERROR:
                raise decode_response_error(response)
            why = str(decode_response_error(response))
        raise Unavailable(f"the server at {self.url} does not take the bytes: {why}; nothing was changed")

    async def get_range(self, path: str, start: int, end: int) -> tuple[bytes, int]:
        """Returns the bytes from `start` up to `end`, as far as there are any, and how many there are in all.

        Raises:
            Unavailable: the server did not answer.
            InterlockError: the error that the server answered with.
        """
        why = ""
        for pause in (0.0, *PAUSES):
            await asyncio.sleep(pause)
            try:
                response = await self.http.get(path, headers={"Range": f"bytes={start}-{end - 1}"})
            except httpx.TransportError as error:
                why = describe_transport_error(error)
                continue
            if response.status_code == httpx.codes.PARTIAL_CONTENT:
                return response.content, int(response.headers["content-range"].rpartition("/")[2])
            if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                return b"", start
            if response.status_code < SERVER_ERROR:
                raise decode_response_error(response)
            why = str(decode_response_error(response))
        raise Unavailable(f"the server at {self.url} does not answer: {why}; nothing was changed")

    async def close(self) -> None:
        await self.http.aclose()


async def read_apart(file: IO[bytes]) -> AsyncIterator[bytes]:
    """Yields a file in pieces."""
    while piece := file.read(PIECE):
        yield piece


def describe_transport_error(error: httpx.TransportError) -> str:
    """Returns the text of an error of the network, or else its class."""
    return str(error) or type(error).__name__


def decode_response_error(response: httpx.Response) -> InterlockError:
    """Returns the error that a response stands for: the class and the text that it has beside the database."""
    try:
        error = msgspec.json.decode(response.content, type=ErrorResponse).error
    except msgspec.MsgspecError:
        return InterlockError(f"{response.url.host} answers {response.status_code}, and is no Interlock server")
    if error.code in CLASS_BY_CODE:
        details = error.details
        return decode_error(
            CommandError(
                CLASS_BY_CODE[error.code], error.message, details.get("lifecycle", ""), details.get("state"),
                legal=tuple(details.get("legal_next", ())),
            )
        )  # fmt: skip
    if response.status_code in (400, 413) and response.request.url.path.startswith(COMMANDS_PATH):
        return RequestRejected(error.message)
    return CLASS_BY_STATUS.get(response.status_code, InterlockError)(error.message)
