"""Blobs in memory, for databases in memory."""

import time
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from interlock.blobs.store import PIECE, check_digest_matches
from interlock.kernel.blobs import BlobRef
from interlock.kernel.errors import Unknown


class MemoryBlob(NamedTuple):
    """Bytes, and when they were last written, in seconds of a clock that only runs on."""

    data: bytes
    written_at: float


class MemoryBlobs:
    """Keeps blobs in a dictionary."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, str], MemoryBlob] = {}

    def open_writer(self, tenant: int) -> "MemoryWriter":
        return MemoryWriter(self, tenant)

    def find_length(self, tenant: int, digest: str) -> int | None:
        blob = self.kept.get((tenant, digest))
        return None if blob is None else len(blob.data)

    def renew(self, tenant: int, digest: str) -> int | None:
        blob = self.kept.get((tenant, digest))
        if blob is not None:
            self.kept[tenant, digest] = MemoryBlob(blob.data, time.monotonic())
        return None if blob is None else len(blob.data)

    def find_pending(self, tenant: int, unwritten_for: float, limit: int) -> list[str]:
        return []  # what nobody uses ends with the process

    def forget_pending(self, tenant: int, digest: str, unwritten_for: float) -> None: ...

    def read(self, tenant: int, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        blob = self.kept.get((tenant, digest))
        if blob is None:
            raise Unknown(f"there is no blob sha256:{digest}")
        data = blob.data[start:end]
        return (data[place : place + PIECE] for place in range(0, len(data), PIECE))

    def delete(self, tenant: int, digest: str, unwritten_for: float) -> bool:
        blob = self.kept.get((tenant, digest))
        if blob is not None and time.monotonic() - blob.written_at < unwritten_for:
            return False
        self.kept.pop((tenant, digest), None)
        return True


class MemoryWriter:
    """Bytes that are being written to memory."""

    def __init__(self, store: MemoryBlobs, tenant: int) -> None:
        self.store, self.tenant = store, tenant
        self.pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        self.pieces.append(bytes(piece))

    def finish(self, digest: str | None = None) -> BlobRef:
        data = b"".join(self.pieces)
        own = sha256(data).hexdigest()
        check_digest_matches(digest, own)
        self.store.kept[self.tenant, own] = MemoryBlob(data, time.monotonic())
        return BlobRef(own, len(data))

    def cancel(self) -> None:
        self.pieces.clear()
