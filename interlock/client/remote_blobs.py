"""Read and write blobs of a server over HTTP."""

from collections.abc import Coroutine, Iterator
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from typing import Any, Protocol

from interlock.blobs.store import PIECE, check_digest_matches
from interlock.client.http_transport import HttpTransport
from interlock.kernel.blobs import BlobRef
from interlock.kernel.errors import InterlockError

IN_MEMORY = 4 * PIECE  # bytes that wait in memory until their digest is known; more wait in a file
PATHS = {False: "/v1/blobs", True: "/v1/worker/blobs"}  # which of them a key may use depends on its scopes


class LoopRunner(Protocol):
    """Has the connections to a server, and the loop that they belong to."""

    transport: HttpTransport

    def run_on_loop(self, coroutine: Coroutine[Any, Any, Any]) -> Any: ...


class RemoteBlobs:
    """Keeps blobs at a server, which knows the tenant by the key."""

    def __init__(self, engine: LoopRunner, *, worker: bool) -> None:
        self.engine, self.path = engine, PATHS[worker]

    def open_writer(self, tenant: int) -> "RemoteWriter":
        return RemoteWriter(self)

    def find_length(self, tenant: int, digest: str) -> int | None:
        raise InterlockError("a server is not asked how long a blob is; read it")

    def renew(self, tenant: int, digest: str) -> int | None:
        raise InterlockError("a server is told of a blob with its bytes")

    def find_pending(self, tenant: int, unwritten_for: float, limit: int) -> list[str]:
        return []  # a server looks after its blobs itself

    def forget_pending(self, tenant: int, digest: str, unwritten_for: float) -> None: ...

    def read(self, tenant: int, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        transport = self.engine.transport
        while end is None or start < end:
            last = start + 4 * PIECE if end is None else min(start + 4 * PIECE, end)
            piece, total = self.engine.run_on_loop(transport.get_range(f"{self.path}/{digest}", start, last))
            if piece:
                yield piece
            start += len(piece)
            if not piece or start >= total:
                return

    def delete(self, tenant: int, digest: str, unwritten_for: float) -> bool:
        raise InterlockError("a server deletes its blobs itself")


class RemoteWriter:
    """Bytes that are sent to a server once all of them are here, because their digest names them."""

    def __init__(self, store: RemoteBlobs) -> None:
        self.store, self.digest, self.length = store, sha256(), 0
        self.file = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - it is closed by `cancel`

    def add(self, piece: bytes) -> None:
        self.digest.update(piece)
        self.length += len(piece)
        self.file.write(piece)

    def finish(self, digest: str | None = None) -> BlobRef:
        own = self.digest.hexdigest()
        check_digest_matches(digest, own)
        engine = self.store.engine
        engine.run_on_loop(engine.transport.upload(f"{self.store.path}/{own}", self.file))
        return BlobRef(own, self.length)

    def cancel(self) -> None:
        self.file.close()
