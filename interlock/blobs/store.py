"""The interface of a blob store: write, read in parts, delete.

A folder (`folder.py`) does it, memory (`memory.py`) and a server across the network (`client/remote_blobs.py`). Object
storage would be one more class. A blob is named by the SHA-256 of its bytes, so it is written once and never changes;
the digest is computed while the bytes are written. Tenants share nothing: the same bytes of two tenants are two blobs.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from interlock.kernel.blobs import BlobRef, parse_reference
from interlock.kernel.errors import Corrupt, InterlockError, NoBlobs

PIECE = 1024 * 1024  # bytes that are read at a time
NO_FOLDER = (
    "this database keeps no blobs: name a folder that every worker and server can write, as in "
    "INTERLOCK_BLOBS=/var/lib/interlock/blobs, and start them anew"
)


class BlobWriter(Protocol):
    """Bytes that are being written. Until `finish` returns there is no blob."""

    def add(self, piece: bytes) -> None: ...

    def finish(self, digest: str | None = None) -> BlobRef:
        """Makes the blob; one that is there already stays. Returns its name.

        Raises:
            InterlockError: the bytes have another digest than the one that was expected. There is no blob then.
        """

    def cancel(self) -> None:
        """Forgets the bytes; after `finish` it does nothing."""


class BlobStore(Protocol):
    """Keeps blobs."""

    def open_writer(self, tenant: int) -> BlobWriter: ...

    def find_length(self, tenant: int, digest: str) -> int | None:
        """Returns how many bytes a blob has; None if there is none."""

    def renew(self, tenant: int, digest: str) -> int | None:
        """Makes a blob as new as if it had just been written. Returns how many bytes it has; None if there is none."""

    def find_pending(self, tenant: int, unwritten_for: float, limit: int) -> list[str]:
        """Returns digests of blobs that were written so many seconds ago or more, and nobody has looked at since."""

    def forget_pending(self, tenant: int, digest: str, unwritten_for: float) -> None:
        """Somebody has looked at a blob that was written so many seconds ago: `find_pending` returns it no more."""

    def read(self, tenant: int, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the bytes from `start` up to `end`, in pieces.

        Raises:
            Unknown: there is no such blob.
        """

    def delete(self, tenant: int, digest: str, unwritten_for: float) -> bool:
        """Deletes a blob that nobody has written for so many seconds; returns whether it is gone.

        Whoever writes bytes that are there already makes them new again. So a blob is not deleted between the moment
        that somebody has written it and the moment that they use it.
        """


def check_digest_matches(expected: str | None, digest: str) -> None:
    """Raises InterlockError if bytes have another digest than they should have."""
    if expected is not None and expected != digest:
        raise InterlockError(
            f"these bytes have the SHA-256 {digest}, and not {expected}: they were changed on their way"
        )


def write_pieces(store: BlobStore, tenant: int, pieces: Iterable[bytes], digest: str | None = None) -> BlobRef:
    """Writes a blob.

    Raises:
        InterlockError: its digest is not the expected one.
    """
    writer = store.open_writer(tenant)
    try:
        for piece in pieces:
            writer.add(piece)
        return writer.finish(digest)
    finally:
        writer.cancel()


def read_file(path: str | Path) -> Iterator[bytes]:
    """Yields a file in pieces.

    Raises:
        InterlockError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            while piece := file.read(PIECE):
                yield piece
    except OSError as error:
        raise InterlockError(f"'{path}' cannot be read: {error.strerror}") from None


def read_whole(store: BlobStore, tenant: int, blob: BlobRef) -> bytes:
    """Returns all bytes of a blob.

    Raises:
        Unknown: there is no such blob.
        Corrupt: they are not the bytes that were written.
    """
    with closing(store.read(tenant, blob.digest)) as pieces:  # type: ignore[type-var]
        data = b"".join(pieces)
    if len(data) != blob.length or sha256(data).hexdigest() != blob.digest:
        raise Corrupt(f"blob sha256:{blob.digest} is damaged: its {len(data):,} bytes are not those that were written")
    return data


def read_value(store: BlobStore | None, tenant: int, text: str) -> str:
    """Returns the JSON text that a row stands for: itself, or that of the blob that it names.

    Raises:
        NoBlobs: it names a blob, and this process knows of no folder.
    """
    blob = parse_reference(text)
    if blob is None:
        return text
    if store is None:
        raise NoBlobs(NO_FOLDER)
    return read_whole(store, tenant, blob).decode()
