"""Files that only their owner may read or write, and a check that a file is still the same."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from interlock.store.connection import Unreachable

OWNER_ONLY = stat.S_IRUSR | stat.S_IWUSR
OF_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


def create_private(path: str | Path) -> int:
    """The descriptor of a new file of mode 0600, whatever the umask is.

    Raises:
        OSError: it cannot be made; FileExistsError if it is there.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), OWNER_ONLY)
    os.fchmod(descriptor, OWNER_ONLY)  # a umask may have taken the owner's own rights away
    return descriptor


def is_open_to_others(path: str | Path) -> bool:
    """Whether the group or everybody may read or write a file.

    Raises:
        OSError: the file cannot be looked at.
    """
    return bool(os.stat(path).st_mode & OF_OTHERS)


class FileIdentity:
    """Which file was opened. A connection goes on with a file that was deleted, and what it writes nobody finds."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)  # the working directory may change; a link is followed anew
        self.opened: os.stat_result | None = None
        with suppress(OSError):  # it is not there: then it cannot be used either
            self.opened = os.stat(self.path)

    def check(self) -> None:
        """The path still leads to the file that was opened. It is looked at once for each transaction.

        Raises:
            Unreachable: the file was moved, replaced or deleted.
        """
        try:
            now = os.stat(self.path)  # a Path costs more than the call
        except OSError:
            now = None
        if now is None or self.opened is None or not os.path.samestat(now, self.opened):
            happened = "is not there any more" if now is None else "was replaced by another file"
            raise Unreachable(
                f"the database file '{self.path}' {happened} since this program opened it; nothing was changed: "
                "put it back, or start the program anew"
            )
