"""How a client speaks HTTP: it asks again where that is safe, and every answer becomes bytes or an error of ours."""

import asyncio

import httpx
import msgspec

from interlock.client.http_codec import Faulty, Trouble, error_of
from interlock.kernel.errors import Denied, InterlockError, LimitReached, TooSlow, Unavailable, Unknown

PAUSES = (0.05, 0.2, 0.5, 1.0)  # seconds before what got no answer is asked again
TIMEOUT = httpx.Timeout(30.0, connect=5.0, pool=None)
LIMITS = httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=3.0)
JSON = {"Content-Type": "application/json"}
AWAY = 500  # and above: the server, or what is before it, cannot answer now
OF_CODE = {"NOT_WANTED": "NotWanted", "STALE_LEASE": "Stale", "INVALID_STATE": "Refused", "TOO_SLOW": "TooSlow"}
OF_STATUS: dict[int, type[InterlockError]] = {
    401: Denied,
    403: Denied,
    404: Unknown,
    429: LimitReached,
    503: Unavailable,
}


class Unread(InterlockError):
    """A request that the server did not take as it is: nothing of it was carried out."""


class TooMuch(InterlockError):
    """More than one request may hold."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(
            f"this is {size:,} bytes, and a server takes at most {most:,} in one request: send it in parts, or keep "
            "large data elsewhere and pass where it is"
        )


class Post:
    """One server, and the key that it is shown."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        headers = {"Authorization": f"Bearer {key}"}
        secure = url.startswith("https:")  # to read all certificates takes longer than a request
        self.http = httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT, limits=LIMITS, verify=secure)

    async def greet(self) -> None:
        """There is a server, and it is ready. Raises Unavailable if there is none."""
        try:
            answer = await self.http.get("/readyz")
        except httpx.TransportError as error:
            raise Unavailable(f"there is no server at {self.url}: {said(error)}") from None
        if answer.status_code >= AWAY:
            raise Unavailable(f"the server at {self.url} is not ready: {refused(answer)}")
        if answer.status_code != httpx.codes.OK:
            raise InterlockError(f"what answers at {self.url} is no Interlock server")

    async def told(self, path: str, body: bytes, *, changes: bool = True) -> bytes:
        """What the server answers, asked until it does for a while. Raises what it refuses with, or Unavailable."""
        unknown, why = False, ""
        for pause in (0.0, *PAUSES):
            await asyncio.sleep(pause)
            try:
                answer = await self.http.post(path, content=body, headers=JSON)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                why = said(error)
            except httpx.TransportError as error:
                unknown, why = True, said(error)
            else:
                if answer.status_code == httpx.codes.OK:
                    return answer.content
                error_told = refused(answer)
                if answer.status_code < AWAY or isinstance(error_told, TooSlow):
                    raise error_told
                unknown, why = unknown or not isinstance(error_told, Unavailable), str(error_told)
        if unknown and changes:
            raise Unavailable(
                f"the server at {self.url} did not answer ({why}); whether it did what was asked is not known: look "
                "before you ask again"
            )
        raise Unavailable(f"the server at {self.url} does not answer: {why}; nothing was changed")

    async def close(self) -> None:
        await self.http.aclose()


def said(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__


def refused(answer: httpx.Response) -> InterlockError:
    """The error that an answer stands for: the class and the text that it has beside the database."""
    try:
        fault = msgspec.json.decode(answer.content, type=Faulty).error
    except msgspec.MsgspecError:
        return InterlockError(f"{answer.url.host} answers {answer.status_code}, and is no Interlock server")
    if fault.code in OF_CODE:
        parts = fault.details
        return error_of(
            Trouble(
                OF_CODE[fault.code], fault.message, parts.get("lifecycle", ""), parts.get("state"),
                legal=tuple(parts.get("legal_next", ())),
            )
        )  # fmt: skip
    if answer.status_code in (400, 413) and answer.request.url.path.startswith("/v1/commands"):
        return Unread(fault.message)
    return OF_STATUS.get(answer.status_code, InterlockError)(fault.message)
