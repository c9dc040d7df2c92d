"""Blobs as files in a folder: FOLDER/TENANT/ab/abcdef…, each of mode 0600.

Bytes are written to a file of their own below FOLDER/new, flushed to the disk, and then linked under their digest. So a
file that can be found by its digest is whole, also after a crash; what a crash leaves in `new` is deleted after a day.

Writing and deleting may happen at once, from several processes, and need no lock. A writer that finds its bytes there
already sets the time of the file, and looks once more whether it still is there. Who deletes moves the file away first,
then looks at its time, and puts it back if somebody has just set it.

A process may die between the moment that it has written bytes and the moment that the database knows of them. So before
a file gets its name, a mark is left in FOLDER/TENANT/unclaimed/HOUR: an empty file with the digest as its name. Who
sweeps looks at the marks of hours long past: what the database knows has its mark deleted, and anything else is deleted
with its mark. Whoever tells the database of bytes makes them new first (`renew`), so they are not deleted meanwhile.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import NoReturn

from interlock.blobs.store import PIECE, check_digest_matches
from interlock.kernel.blobs import BlobRef
from interlock.kernel.errors import InterlockError, Unknown

OWNER_ONLY_FILE, OWNER_ONLY_FOLDER = 0o600, 0o700
LEFTOVERS_KEPT = 86_400.0  # seconds for which a file in `new` may be being written
PENDING = "unclaimed"  # the folder of the marks
HOUR = 3_600  # seconds
TRIES = 5  # of a writer whose file is deleted again and again


class FolderBlobs:
    """Keeps blobs in a folder, which is made when the first one is written."""

    def __init__(self, folder: str | Path, *, marks: bool = False) -> None:
        """`marks`: writers leave marks for `find_pending`, because a database is to be told of what they write."""
        self.folder, self.marks = Path(os.path.abspath(folder)), marks

    def find_path(self, tenant: int, digest: str) -> Path:
        return self.folder / str(tenant) / digest[:2] / digest

    def open_writer(self, tenant: int) -> "FolderWriter":
        return FolderWriter(self, tenant)

    def find_length(self, tenant: int, digest: str) -> int | None:
        try:
            return self.find_path(tenant, digest).stat().st_size
        except OSError:
            return None

    def renew(self, tenant: int, digest: str) -> int | None:
        path = self.find_path(tenant, digest)
        try:
            os.utime(path)
            return path.stat().st_size
        except OSError:
            return None

    def find_pending(self, tenant: int, unwritten_for: float, limit: int) -> list[str]:
        digests: list[str] = []
        for hour in self.list_marked_hours(tenant, unwritten_for):
            with suppress(OSError):
                names = [entry.name for entry in os.scandir(hour)]
                digests += names[: limit - len(digests)]
                if not names:
                    hour.rmdir()
        return digests

    def list_marked_hours(self, tenant: int, unwritten_for: float) -> list[Path]:
        """The folders of marks that nobody adds to any more, since so many seconds at least, the oldest first."""
        try:
            hours = [entry.name for entry in os.scandir(self.folder / str(tenant) / PENDING) if entry.name.isdecimal()]
        except OSError:
            return []
        last = int(time.time() - unwritten_for) // HOUR
        return [self.folder / str(tenant) / PENDING / hour for hour in sorted(hours, key=int) if int(hour) < last]

    def forget_pending(self, tenant: int, digest: str, unwritten_for: float) -> None:
        for hour in self.list_marked_hours(tenant, unwritten_for):
            with suppress(OSError):
                (hour / digest).unlink(missing_ok=True)

    def read(self, tenant: int, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        try:
            file = self.find_path(tenant, digest).open("rb")
        except FileNotFoundError:
            raise Unknown(f"there is no blob sha256:{digest}") from None
        except OSError as error:
            raise InterlockError(f"blob sha256:{digest} cannot be read: {error.strerror}") from None

        def read_pieces() -> Iterator[bytes]:
            with file:
                file.seek(start)
                left = None if end is None else end - start
                while left is None or left > 0:
                    piece = file.read(PIECE if left is None else min(PIECE, left))
                    if not piece:
                        return
                    left = None if left is None else left - len(piece)
                    yield piece

        return read_pieces()

    def delete(self, tenant: int, digest: str, unwritten_for: float) -> bool:
        path, moved = self.find_path(tenant, digest), self.name_new_file()
        try:
            if time.time() - path.stat().st_mtime < unwritten_for:
                return False
            self.folder.joinpath("new").mkdir(mode=OWNER_ONLY_FOLDER, exist_ok=True)
            path.rename(moved)
            if time.time() - moved.stat().st_mtime < unwritten_for:  # somebody has just written the same bytes
                with suppress(FileExistsError):
                    os.link(moved, path)
                moved.unlink()
                return False
            moved.unlink()
        except FileNotFoundError:
            return True
        except OSError as error:
            self.refuse(error)
        return True

    def name_new_file(self) -> Path:
        return self.folder / "new" / token_hex(16)

    def refuse(self, error: OSError) -> NoReturn:
        raise InterlockError(f"blobs cannot be kept in '{self.folder}': {error.strerror}") from None


class FolderWriter:
    """Bytes that are being written to a folder."""

    def __init__(self, store: FolderBlobs, tenant: int) -> None:
        self.store, self.tenant = store, tenant
        self.digest, self.length = sha256(), 0
        self.path = store.name_new_file()
        try:
            make_folders(store.folder, self.path.parent)
            delete_leftovers(self.path.parent)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY_FILE)
            os.fchmod(descriptor, OWNER_ONLY_FILE)  # a umask may have taken the owner's own rights away
            self.file = os.fdopen(descriptor, "wb")
        except OSError as error:
            store.refuse(error)

    def add(self, piece: bytes) -> None:
        self.digest.update(piece)
        self.length += len(piece)
        try:
            self.file.write(piece)
        except OSError as error:
            self.store.refuse(error)

    def finish(self, digest: str | None = None) -> BlobRef:
        own = self.digest.hexdigest()
        try:
            check_digest_matches(digest, own)
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            self.publish(self.store.find_path(self.tenant, own))
        except OSError as error:
            self.store.refuse(error)
        finally:
            self.cancel()
        return BlobRef(own, self.length)

    def publish(self, path: Path) -> None:
        """Gives the file its name, unless a file of that name is there already, which has the same bytes."""
        make_folders(self.store.folder, path.parent)
        if self.store.marks:
            mark = path.parent.parent / PENDING / str(int(time.time()) // HOUR) / path.name
            make_folders(self.store.folder, mark.parent)
            mark.touch(OWNER_ONLY_FILE)
        for _ in range(TRIES):
            try:
                os.link(self.path, path)
                sync_folder(path.parent)
                return
            except FileExistsError:
                with suppress(FileNotFoundError):
                    os.utime(path)
                    path.stat()
                    return
        raise OSError(0, "a file is deleted as often as it is written")

    def cancel(self) -> None:
        self.file.close()
        self.path.unlink(missing_ok=True)


def make_folders(top: Path, folder: Path) -> None:
    """Makes a folder and those above it, from `top` on for their owner alone."""
    top.parent.mkdir(parents=True, exist_ok=True)
    for part in (top, *reversed(folder.relative_to(top).parents[:-1]), folder.relative_to(top)):
        (top / part).mkdir(mode=OWNER_ONLY_FOLDER, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """The names of the files in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete_leftovers(folder: Path) -> None:
    """Deletes what writers that have ended with their process left behind."""
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):
            if time.time() - entry.stat().st_mtime > LEFTOVERS_KEPT:
                os.unlink(entry.path)
