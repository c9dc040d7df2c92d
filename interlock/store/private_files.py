"""Files that only their owner may read or write."""

import os
import stat
from pathlib import Path

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
