"""The server that a command speaks to instead of a database, and the key that it shows there."""

import os
from pathlib import Path

from interlock.client.backend import is_far
from interlock.client.keys import refuse_open
from interlock.kernel.errors import InterlockError


def server_of(url: str) -> str:
    """Raises InterlockError for what is no server."""
    if not is_far(url):
        raise InterlockError(f"--server '{url}' is not allowed; allowed are http://host:port and https://host")
    return url


def key_from(file: Path | None) -> str:
    """The key in a file, or that of INTERLOCK_KEY. Raises InterlockError, also if others could read the file."""
    if file is None:
        return os.environ.get("INTERLOCK_KEY", "")
    try:
        refuse_open(file)
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise InterlockError(f"the key file '{file}' cannot be read: {error}") from None
