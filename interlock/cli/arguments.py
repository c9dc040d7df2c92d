"""Hide passwords of the command line from the list of processes, where every user of the machine could read them.

A command that was given a database URL with a password starts itself anew with the password replaced in its
arguments. The arguments as they were given go by the environment, which only the same user can read, and are taken
out of it at once. The process keeps its id, so whoever started it still waits for it and signals it.
"""

import json
import os
import re
import sys
from urllib.parse import urlsplit, urlunsplit

from interlock.kernel.errors import InterlockError

GIVEN = "INTERLOCK_GIVEN_ARGUMENTS"
HIDDEN = "***"
IN_QUERY = re.compile(r"(?<=[?&]password=)[^&]+")


def hide_passwords() -> None:
    """Hide passwords from the arguments of this process; `sys.argv` stays as it was given.

    Raises:
        InterlockError: the process cannot be started anew.
    """
    given = os.environ.pop(GIVEN, None)
    if given is not None:
        sys.argv[1:] = json.loads(given)
        return
    shown = [hide_password(argument) for argument in sys.argv[1:]]
    if shown == sys.argv[1:] or sys.orig_argv[len(sys.orig_argv) - len(shown) :] != sys.argv[1:]:
        return
    command = [*sys.orig_argv[: len(sys.orig_argv) - len(shown)], *shown]
    try:
        os.execve(sys.executable, command, {**os.environ, GIVEN: json.dumps(sys.argv[1:])})
    except OSError as error:
        raise InterlockError(
            f"the password in the database URL cannot be hidden from other users ({error.strerror}): give the URL by "
            "INTERLOCK_DB, or leave the password out and keep it in ~/.pgpass"
        ) from None


def hide_password(argument: str) -> str:
    """Return an argument with the password of a database URL replaced, if there is one."""
    name, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    try:
        url = urlsplit(value)
        secret = url.password
    except ValueError:
        return argument
    if not url.scheme.startswith("postgres"):
        return argument
    query = IN_QUERY.sub(HIDDEN, f"?{url.query}")[1:]
    place = url.netloc
    if secret:
        user, _, host = place.rpartition("@")
        place = f"{user.partition(':')[0]}:{HIDDEN}@{host}"
    return name + equals + urlunsplit((url.scheme, place, url.path, query, url.fragment))
