"""The server that a worker connects to instead of a database, and its key."""

import os
from pathlib import Path

from interlock.client.backend import is_far
from interlock.client.keys import refuse_open
from interlock.kernel.errors import InterlockError


def check_server(url: str) -> str:
    """Return the URL of a server.

    Raises:
        InterlockError: it is no such URL.
    """
    if not is_far(url):
        raise InterlockError(f"--server '{url}' is not allowed; allowed are http://host:port and https://host")
    return url


def read_key(file: Path | None) -> str:
    """Return the key in a file, or that of INTERLOCK_KEY.

    Raises:
        InterlockError: the file cannot be read, or others can read it.
    """
    if file is None:
        return os.environ.get("INTERLOCK_KEY", "")
    try:
        refuse_open(file)
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise InterlockError(f"the key file '{file}' cannot be read: {error}") from None
