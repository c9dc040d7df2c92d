"""The server's log lines: plain words, then facts as key=value and as JSON fields."""

import logging
from typing import Any

log = logging.getLogger("interlock.server")


def write_log(level: int, text: str, error: Any = None, **facts: Any) -> None:
    """Writes one line.

    Parameters:
        text: what happened, in words that an operator searches for. It holds nothing that a caller sent.
        error: an exception whose traceback belongs below the line.
        facts: what the line is about. Those that are None are left out of the text.
    """
    pairs = [f"{name}={value}" for name, value in facts.items() if value is not None]
    log.log(level, "%s", " ".join([text, *pairs]), exc_info=error, extra={"facts": facts})
